"""What drafts of the MTP block add to a step's time, learned from steps with and without them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from pyjet.engine.step_costs import index_of
from pyjet.native.structs import MAX_DRAFT

Parts = tuple[int, int, int]

RESTS = -1  # as the number of drafts: the MTP block has no part in the step
N_RECENT = 15  # measurements whose median counts
N_ENOUGH = 8  # of them
FRESH_STEPS = 100  # older measurements are compared with none: contexts have grown
LEARN_STEPS = 3  # differences are looked at so often
LEARNING = 0.02  # of a difference between measured and expected is believed: steps differ by more without a reason
UNKNOWN = (0.05, 0.05, 0.03)  # of a step of one row, before anything was measured


class DraftCosts:
    """Seconds of a step's MTP part: keeping its KV up to date, the first draft, each further draft.

    One pass makes a draft for every sequence that wants one, so prices do not depend on the number of sequences. What
    looking at their contexts takes is not in them.
    """

    def __init__(self, calibrated: Sequence[float] = (), row_seconds: float = 0.0) -> None:
        self._set_prices(list(calibrated) or [share * row_seconds for share in UNKNOWN])
        # By size of the step, its longest sequence and number of drafts: recent seconds, and the step of the last one.
        self._seen: dict[tuple[int, int, int], tuple[deque[float], int]] = {}
        self._n_steps = 0

    def seconds(self, n_draft: int) -> float:
        """Price of ``n_draft`` drafts; 0: of KV alone; RESTS: 0."""
        return self._seconds[n_draft - RESTS]

    def _set_prices(self, prices: list[float]) -> None:
        self._prices = prices
        self._seconds = [
            sum(price * n for price, n in zip(prices, _parts(n_draft))) for n_draft in range(RESTS, MAX_DRAFT + 1)
        ]

    def observe(self, n_rows: int, widest: int, n_draft: int, seconds: float) -> None:
        """A step of ``n_rows``, ``widest`` of one sequence, that only decoded, took so long with ``n_draft`` drafts."""
        self._n_steps += 1
        size = index_of(n_rows)
        recent, _ = self._seen.get((size, widest, n_draft), (deque(maxlen=N_RECENT), 0))
        recent.append(seconds)
        self._seen[size, widest, n_draft] = recent, self._n_steps
        if self._n_steps % LEARN_STEPS or len(recent) < N_ENOUGH:
            return
        for other in (RESTS, *range(MAX_DRAFT + 1)):
            before, at_step = self._seen.get((size, widest, other), (recent, 0))
            if before is not recent and len(before) >= N_ENOUGH and self._n_steps - at_step <= FRESH_STEPS:
                self._learn(_parts(n_draft), _parts(other), median(recent) - median(before))
                break

    def _learn(self, parts: Parts, other: Parts, difference: float) -> None:
        """Move the prices towards what explains a measured difference (normalised least mean squares)."""
        changes = [n - n_other for n, n_other in zip(parts, other)]
        error = difference - sum(price * n for price, n in zip(self._prices, changes))
        step = LEARNING * error / sum(n * n for n in changes)
        self._set_prices([max(0.0, price + step * n) for price, n in zip(self._prices, changes)])


def _parts(n_draft: int) -> Parts:
    """How often each price is paid."""
    return int(n_draft > RESTS), int(n_draft > 0), max(0, n_draft - 1)
