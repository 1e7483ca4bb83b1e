"""What a step of so many rows takes, learned from the steps that ran."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from statistics import median

# Row counts at which kernels change their tiles, four to an octave. What is measured for a count is kept for the next
# size above it: cost is a staircase, and a size stands for the whole stair below it.
SIZES = tuple(sorted({*range(1, 5), *(k << octave for octave in range(14) for k in range(4, 8))}))
N_RECENT = 5  # measurements whose median counts: a swap or another process may spoil two of them
SMALL_ROWS = 256  # steps of more rows take about as much longer as they have more of them
MAX_GAP = 2  # between sizes further apart than this factor the price is taken from a line, or none would be tried
FRESH_STEPS = 100  # a measurement older than so many steps is scaled by what has changed since
NEAR_STEPS = 8  # two sizes measured within so many steps had about the same contexts
MIN_GROWTH = 0.1  # of the nearest size's price: from less nothing can be said of how much steeper another one is


def index_of(n_rows: int) -> int:
    """Of the size in SIZES that stands for ``n_rows``."""
    return min(bisect_left(SIZES, n_rows), len(SIZES) - 1)


class SizeCost:
    """The newest measurements of one size. ``calibrated``: seconds when nothing was in the context; 0: unknown.

    Attention is a larger part of some sizes: since then they grew by several times the share that others did.
    """

    def __init__(self) -> None:
        self.calibrated = 0.0
        self.level = 0.0
        self.at_step = 0
        self._recent: deque[float] = deque(maxlen=N_RECENT)
        # How many times the share. A spoilt step alone must not count: the size would never be tried again.
        self._times = deque([1.0, 1.0], N_RECENT)

    @property
    def newest(self) -> float:
        """0 when it was never measured."""
        return self._recent[-1] if self._recent else 0.0

    def add(self, seconds: float, at_step: int) -> None:
        self._recent.append(seconds)
        self.level = median(self._recent)
        self.at_step = at_step

    def compare(self, growth: float) -> None:
        """It was measured when the nearest size took ``growth`` (a share of its calibrated price) longer than then."""
        if growth >= MIN_GROWTH:
            self._times.append(max(0.0, self.newest / self.calibrated - 1.0) / growth)

    def grown(self, growth: float) -> float:
        """Its price when the nearest size takes so much longer."""
        return self.calibrated * (1.0 + growth * (median(self._times) if growth > 0.0 else 1.0))


class StepCosts:
    """Prices of steps. They follow slow changes (contexts grow, the device gets warm) by the newest measurements.

    Context depth needs no term of its own: it changes slowly beside the number of steps, and prices follow within
    a few of them. ``calibrated``: (rows, seconds) of steps measured in advance.
    """

    def __init__(self, calibrated: Iterable[tuple[int, float]] = (), fresh_steps: int = FRESH_STEPS) -> None:
        self._fresh_steps = fresh_steps
        self._costs: dict[int, SizeCost] = {}  # by index in SIZES
        self._known: list[int] = []  # its keys in order
        self._n_steps = 0
        for n_rows, seconds in calibrated:
            self.observe(n_rows, seconds)
        for cost in self._costs.values():
            cost.calibrated = cost.level

    def observe(self, n_rows: int, seconds: float) -> None:
        """A step of ``n_rows`` took so long."""
        index = index_of(n_rows)
        if index not in self._costs:
            self._costs[index] = SizeCost()
            self._known = sorted(self._costs)
        self._n_steps += 1
        cost = self._costs[index]
        cost.add(max(seconds, 1e-9), self._n_steps)
        if cost.calibrated and (growth := self._growth(index, NEAR_STEPS)) is not None:
            cost.compare(growth)

    def seconds(self, n_rows: int) -> float:
        """Price of a step, rather too high than too low; 0 when nothing has been measured.

        A size never measured costs as much as the next larger one, or in proportion to the largest that was measured.
        """
        if not self._known:
            return 0.0
        index = index_of(n_rows)
        at = bisect_left(self._known, index)
        if at == len(self._known):
            largest = self._known[-1]
            return self._price(largest) * max(n_rows / SIZES[largest], 1.0)
        after = self._known[at]
        before = self._known[at - 1] if at > 0 else after
        if after == index or SIZES[after] <= MAX_GAP * SIZES[before]:
            return self._price(after)
        part = (SIZES[index] - SIZES[before]) / (SIZES[after] - SIZES[before])
        return self._price(before) * (1.0 - part) + self._price(after) * part

    def likely(self, n_rows: int) -> float:
        """The same, but of a large size never measured rather too low, so that it is tried and known afterwards.

        Stairs are small beside steps of so many rows: the price lies on a line between those of its neighbours.
        """
        index = index_of(n_rows)
        at = bisect_left(self._known, index)
        if n_rows <= SMALL_ROWS or not 0 < at < len(self._known) or self._known[at] == index:
            return self.seconds(n_rows)
        before, after = self._known[at - 1], self._known[at]
        part = (n_rows - SIZES[before]) / (SIZES[after] - SIZES[before])
        return self._price(before) * (1.0 - part) + self._price(after) * part

    def decode_seconds(self, n_rows: int) -> float:
        """What a step of decoding rows alone took last, rather too low than too high: others' speed is measured by it.

        Decoding alone may be long ago: it is not scaled by what steps with long prompts take now.
        """
        if not self._known:
            return 0.0
        index = index_of(n_rows)
        at = bisect_left(self._known, index)
        if at < len(self._known) and self._known[at] == index:
            return self._costs[index].level
        return self._costs[self._known[max(0, at - 1)]].level

    def _price(self, index: int) -> float:
        """A size not measured lately has become slower since its calibration as the nearest one did that was.

        By the same share of its price, or by more if that was so when both were measured. So a size that once was too
        slow is tried again when a prompt starts from the beginning or the device is free.
        """
        cost = self._costs[index]
        if self._is_fresh(index, self._fresh_steps) or not cost.calibrated:
            return cost.level
        growth = self._growth(index, self._fresh_steps)
        return cost.level if growth is None else cost.grown(growth)

    def _growth(self, index: int, n_steps: int) -> float | None:
        """By what share the nearest other size of the last ``n_steps`` takes longer than calibrated; None: no other.

        Its newest price counts: from one prompt to the next contexts differ.
        """
        near = [i for i in self._known if i != index and self._costs[i].calibrated and self._is_fresh(i, n_steps)]
        if not near:
            return None
        nearest = self._costs[min(near, key=lambda i: abs(i - index))]
        return nearest.newest / nearest.calibrated - 1.0

    def _is_fresh(self, index: int, n_steps: int) -> bool:
        return self._costs[index].at_step > self._n_steps - n_steps
