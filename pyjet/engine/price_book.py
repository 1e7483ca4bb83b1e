"""What steps that only decode take, by their rows, among steps that are alike otherwise."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import sqrt
from statistics import median

import numpy as np
import numpy.typing as npt

from pyjet.engine.step_costs import SIZES, index_of

Float64Array = npt.NDArray[np.float64]

N_RECENT = 15  # measurements whose median counts
NOISE = 0.03  # of one step's time
AGE_STEPS = 500  # after so many steps a price is as doubtful as after one measurement
BELOW_BASE = 0.05  # of what was measured in advance may be saved, at most
UNKNOWN = 0.25  # a price that was never measured is as much lower than expected, at most


class Known:
    """The newest measurements of one size, the last one in step ``at_step``. ``is_own``: they are of this company."""

    def __init__(self, seconds: float, at_step: int, *, is_own: bool) -> None:
        self.level = seconds
        self.at_step = at_step
        self.is_own = is_own
        self._recent: deque[float] = deque([seconds] if is_own else (), N_RECENT)

    def add(self, seconds: float, at_step: int) -> None:
        self._recent.append(seconds)
        self.level = median(self._recent)
        self.at_step = at_step
        self.is_own = True

    @property
    def weight(self) -> int:
        """How many measurements the level is worth."""
        return max(1, len(self._recent))

    def doubt(self, step: int) -> float:
        """Standard error of the level, as a share of it."""
        return NOISE * sqrt(1.0 / self.weight + (step - self.at_step) / AGE_STEPS) if self.is_own else UNKNOWN


class PriceBook:
    """Prices by size (one of SIZES stands for those below it, up to the next smaller one).

    ``base``: float64[N + 1], seconds of steps of 0, 1, ... N rows that were measured in advance, or zeros. What a book
    knows is how much longer its own steps take. Between two sizes that is on a line, below the smallest and above the
    largest one in proportion to the rows. Fewer rows never take longer.
    """

    def __init__(self, base: Float64Array) -> None:
        self._base = base
        self.n_steps = 0  # that were measured
        self._known: dict[int, Known] = {}  # by index in SIZES
        self._rows = np.arange(len(base), dtype=np.float64)

    def inherit(self, other: PriceBook, share: float, *, is_near: bool) -> None:
        """Begin with another book's prices; what they are above the base counts ``share`` times.

        ``is_near``: they count as one measurement each; otherwise they are doubtful.
        """
        for index, known in other._known.items():
            base = self._base_of(index)
            is_own = is_near and known.is_own
            self._known[index] = Known(base + share * (known.level - base), known.at_step, is_own=is_own)

    def add(self, n_rows: int, seconds: float, step: int) -> None:
        """A step of ``n_rows`` took so long."""
        self.n_steps += 1
        index = index_of(n_rows)
        if (known := self._known.get(index)) is None:
            self._known[index] = Known(seconds, step, is_own=True)
        else:
            known.add(seconds, step)

    def prices(self) -> Float64Array:
        """float64[N + 1]: expected seconds of steps of 0, 1, ... N rows."""
        if not self._known:
            return np.maximum.accumulate(self._base)
        indices = sorted(self._known)
        levels = not_falling([(self._known[i].level, self._known[i].weight) for i in indices])
        above = [level - self._base_of(i) for i, level in zip(indices, levels)]
        sizes = [SIZES[i] for i in indices]
        extra = np.interp(self._rows, [0, *sizes], [0.0, *above])
        extra[sizes[-1] + 1 :] = above[-1] / sizes[-1] * self._rows[sizes[-1] + 1 :]
        return np.maximum.accumulate(self._base + extra)

    def least(self, n_rows: int, expected: float, step: int) -> float:
        """What a step of ``n_rows`` takes at least, when ``expected`` is its price."""
        known = self._known.get(index_of(n_rows))
        if known is not None and known.is_own:
            return expected * (1.0 - known.doubt(step))
        smaller = (k.level for i, k in self._known.items() if k.is_own and i < index_of(n_rows))
        base = float(self._base[min(n_rows, len(self._base) - 1)])
        return max(expected * (1.0 - UNKNOWN), base * (1.0 - BELOW_BASE), *smaller)

    def is_known(self, n_rows: int) -> bool:
        """Whether steps of that size were measured."""
        known = self._known.get(index_of(n_rows))
        return known is not None and known.is_own

    def _base_of(self, index: int) -> float:
        return float(self._base[min(SIZES[index], len(self._base) - 1)])


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
