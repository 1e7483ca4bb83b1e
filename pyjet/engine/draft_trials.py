"""Trials: a few steps with another number of drafts, because nobody knows what so many rows take.

The best number by the prices that are known is also the one whose price is measured, so a better one could stay
unknown for ever. What trials lose is bounded: they wait until their budget allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyjet.engine.decode_prices import DecodePrices
from pyjet.engine.draft_outlook import DraftOutlook
from pyjet.engine.draft_policy import Company, DraftPolicy

N_MEASURED = 3  # steps of a trial that count
N_LONGEST = 6  # steps after which a trial ends in any case: there may be fewer drafts than it wants
REACH = 2  # the best number of drafts plus or minus so many are tried: prices have stairs
FIRST_STEPS = 4  # in some company, before anything is tried there
PAUSE_STEPS = 4  # between two trials, so that what is learned comes to count
AGAIN_STEPS = 16  # before the same number is tried once more; twice as many each time
WORTHWHILE = 1.01  # times as fast a number may be, or it is not worth a trial
FIRST_BUDGET = 1.5  # steps that may be lost before any were saved
SAVED = 0.005  # of each step is saved for trials
MOST_SAVED = 1.5  # steps


@dataclass
class Trial:
    """``n_draft`` drafts of each sequence, ``n_rows`` in all, verified whether they pay or not."""

    n_draft: int
    n_rows: int
    n_steps: int = 0
    n_measured: int = 0

    @property
    def is_over(self) -> bool:
        return self.n_measured >= N_MEASURED or self.n_steps >= N_LONGEST


class DraftTrials:
    """At most one at a time: ``consider`` begins it, ``begin_step`` says what it wants of the next step."""

    def __init__(self, policy: DraftPolicy, outlook: DraftOutlook) -> None:
        self._policy = policy
        self._prices: DecodePrices = policy.prices
        self._outlook = outlook
        self._trial: Trial | None = None
        self._budget = FIRST_BUDGET  # steps
        self._n_steps = 0  # so far
        self._resting_until = 0
        self._tried: dict[tuple[Company, int], int] = {}  # how often each number of drafts was
        self._not_before: dict[tuple[Company, int], int] = {}  # the step at which it may be again

    def begin_step(self, *, is_possible: bool) -> Trial | None:
        """The trial that the next step is part of. ``is_possible``: it is one that only decodes."""
        self._n_steps += 1
        self._budget = min(MOST_SAVED, self._budget + SAVED)
        trial = self._trial
        if trial is not None and (trial.is_over or not is_possible):
            self._trial = trial = None
            self._resting_until = self._n_steps + PAUSE_STEPS
        if trial is not None:
            trial.n_steps += 1
        return trial

    def note_rows(self, n_rows: int) -> None:
        """The step of a trial got so many rows."""
        assert self._trial is not None
        self._trial.n_measured += n_rows == self._trial.n_rows

    def pay(self, tokens: float, seconds: float) -> None:
        """What a step of a trial lost, of which so many tokens were expected."""
        best = max(self._outlook.rates)
        if best > 0.0 and seconds > 0.0:
            self._budget -= max(0.0, 1.0 - tokens / seconds / best)

    def consider(self, best: int, company: Company, room: int) -> None:
        """Begin a trial if some number near the ``best`` one may be better, as far as is known."""
        if self._trial is not None or self._n_steps < self._resting_until or company.n_prompt_rows:
            return
        if self._prices.book.n_steps < FIRST_STEPS:
            return
        promises = [(self._promise(n, company), n) for n in self._near(best, company, room)]
        promise, n_draft = max(promises, default=(0.0, 0))
        if promise < WORTHWHILE or self._budget < self._expected_loss(n_draft):
            return
        key = company, n_draft
        self._tried[key] = n_tried = self._tried.get(key, 0) + 1
        self._not_before[key] = self._n_steps + AGAIN_STEPS * 2**n_tried
        self._trial = Trial(n_draft, company.n_rows * (1 + n_draft))

    def _near(self, best: int, company: Company, room: int) -> Sequence[int]:
        """Numbers of drafts that may be tried now."""
        most = min(len(self._outlook.rates) - 1, room // company.n_rows)
        return [
            n
            for n in range(max(0, best - REACH), min(most, best + REACH) + 1)
            if (n != best or not self._prices.book.is_known(1 + n))
            and self._n_steps >= self._not_before.get((company, n), 0)
        ]

    def _promise(self, n_draft: int, company: Company) -> float:
        """How many times as fast as the best number this one is, at best."""
        seconds = self._prices.least(company.n_rows * (1 + n_draft), 1 + n_draft) + self._policy.pass_seconds(n_draft)
        return self._outlook.tokens[n_draft] / seconds / max(self._outlook.rates)

    def _expected_loss(self, n_draft: int) -> float:
        """Steps, by the prices that are known."""
        rates = self._outlook.rates
        return N_MEASURED * max(0.0, 1.0 - rates[n_draft] / max(rates))
