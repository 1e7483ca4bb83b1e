"""What steps that only decode take beyond empty contexts, by their longest sequence, among steps alike otherwise."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import sqrt
from statistics import median

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]

N_RECENT = 15  # measurements whose median counts
NOISE = 0.03  # of one step's time
AGE_STEPS = 500  # after so many steps a price is as doubtful as after one measurement
BELOW_BASE = 0.05  # of what was measured in advance may be saved, at most
READ_ONCE = 0.5  # of what contexts add is reading them, which takes as long for more rows of a sequence
UNKNOWN = 0.25  # a price that was never measured is as much lower than expected, at most


class Known:
    """The newest measurements with one number of rows of the longest sequence, the last one in step ``at_step``.

    ``is_own``: they are of this company; otherwise the first one is a guess, which the next one takes the place of.
    """

    def __init__(self, n_rows: int, seconds: float, at_step: int, *, is_own: bool) -> None:
        self.at_step = at_step
        self.is_own = is_own
        self._recent = deque([(n_rows, seconds)], N_RECENT)

    def add(self, n_rows: int, seconds: float, at_step: int) -> None:
        if not self.is_own:
            self._recent.clear()
        self._recent.append((n_rows, seconds))
        self.at_step = at_step
        self.is_own = True

    def above(self, base: Float64Array) -> float:
        """Median of what they took beyond the ``base`` of their rows."""
        return median([seconds - float(base[n_rows]) for n_rows, seconds in self._recent])

    def inherited(self, base: Float64Array, share: float, *, is_own: bool) -> Known:
        """For another book: what it is above the base counts ``share`` times."""
        n_rows, _ = self._recent[-1]
        return Known(n_rows, float(base[n_rows]) + share * self.above(base), self.at_step, is_own=is_own)

    @property
    def weight(self) -> int:
        """How many measurements it is worth."""
        return len(self._recent)

    def doubt(self, step: int) -> float:
        """Standard error of a step's price, as a share of it."""
        return NOISE * sqrt(1.0 / self.weight + (step - self.at_step) / AGE_STEPS) if self.is_own else UNKNOWN


class PriceBook:
    """What steps take beyond those with nothing in the contexts, by the rows of their longest sequence.

    ``base``: float64[N + 1], seconds of steps of 0, 1, ... N rows that were measured in advance, or zeros. It may be
    wrong: only that more rows of all ``n_sequences`` never take less time is taken for granted.
    """

    def __init__(self, base: Float64Array, n_sequences: int) -> None:
        self._base = base
        self._n_sequences = n_sequences
        self.n_steps = 0  # that were measured
        self._known: dict[int, Known] = {}  # by rows of the longest sequence
        self._widths = np.arange(len(base), dtype=np.float64)

    def inherit(self, other: PriceBook, share: float, *, is_near: bool) -> None:
        """Begin with another book's prices; what they are above the base counts ``share`` times.

        ``is_near``: they count as one measurement each; otherwise they are doubtful.
        """
        for widest, known in other._known.items():
            self._known[widest] = known.inherited(self._base, share, is_own=is_near and known.is_own)

    def add(self, n_rows: int, widest: int, seconds: float, step: int) -> None:
        """A step of ``n_rows``, ``widest`` of one sequence, took so long."""
        self.n_steps += 1
        if (known := self._known.get(widest)) is None:
            self._known[widest] = Known(n_rows, seconds, step, is_own=True)
        else:
            known.add(n_rows, seconds, step)

    def above(self) -> Float64Array:
        """float64[N + 1]: expected seconds beyond the base, when the longest sequence has 0, 1, ... N rows.

        Between two measured numbers it is on a line; below the smallest and above the largest one, half of it stays as
        it is: rows share what is read of their context.
        """
        if not self._known:
            return np.zeros(len(self._base))
        widths = sorted(self._known)
        bases = [self._base_of(self._n_sequences * w) for w in widths]
        levels = not_falling(
            [(base + self._known[w].above(self._base), self._known[w].weight) for base, w in zip(bases, widths)]
        )
        known = [level - base for level, base in zip(levels, bases)]
        above = np.interp(self._widths, widths, known)
        for end, level, outside in (
            (widths[0], known[0], self._widths < widths[0]),
            (widths[-1], known[-1], self._widths > widths[-1]),
        ):
            above[outside] += READ_ONCE * max(0.0, level) * (self._widths[outside] / end - 1.0)
        return above

    def least(self, n_rows: int, widest: int, expected: float, step: int) -> float:
        """What such a step takes at least, when ``expected`` is its price."""
        known = self._known.get(widest)
        if known is not None and known.is_own:
            return expected * (1.0 - known.doubt(step))
        base = self._base_of(n_rows)
        smaller = [
            (base + other.above(self._base)) * (1.0 - other.doubt(step))
            for w, other in self._known.items()
            if other.is_own and w < widest
        ]
        return max(expected * (1.0 - UNKNOWN), base * (1.0 - BELOW_BASE), *smaller)

    def is_known(self, widest: int) -> bool:
        """Whether steps were measured whose longest sequence has so many rows."""
        known = self._known.get(widest)
        return known is not None and known.is_own

    def _base_of(self, n_rows: int) -> float:
        return float(self._base[min(n_rows, len(self._base) - 1)])


def not_falling(levels: Iterable[tuple[float, int]]) -> list[float]:
    """The nearest levels that never fall, of (level, weight); neighbours that do fall get their mean.

    Pool adjacent violators (Ayer, Brunk, Ewing, Reid, Silverman, "An empirical distribution function for sampling
    with incomplete information", 1955).
    """
    pools: list[tuple[float, int, int]] = []  # mean, weight, members
    for level, weight in levels:
        pools.append((level, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, of_a, n_a), (b, of_b, n_b) = pools[-2:]
            pools[-2:] = [((a * of_a + b * of_b) / (of_a + of_b), of_a + of_b, n_a + n_b)]
    return [mean for mean, _, n in pools for _ in range(n)]
