"""What steps with drafts took, and what is learned from that once there is time."""

from __future__ import annotations

from typing import NamedTuple

from pyjet.engine.draft_costs import RESTS, DraftCosts
from pyjet.engine.draft_policy import Company, DraftPolicy
from pyjet.engine.draft_trials import DraftTrials
from pyjet.engine.step_costs import StepCosts


class StepShape(NamedTuple):
    """What a step's time depends on. ``widest``: rows of the longest sequence, of those that decode alone.

    ``n_draft``: drafts that it makes; ``tokens``: that are expected of a trial.
    """

    n_rows: int
    widest: int
    n_draft: int
    company: Company | None  # None: it reads prompts too; of no sequence: nobody asks for prices
    tokens: float | None


class StepLessons:
    """``shape``: of the planned step. ``is_calibrated``: prices were measured at load; then prompts teach nothing."""

    def __init__(
        self, costs: StepCosts, passes: DraftCosts, policy: DraftPolicy, trials: DraftTrials, *, is_calibrated: bool
    ) -> None:
        self.shape = StepShape(0, 0, RESTS, None, None)
        self._costs = costs
        self._passes = passes
        self._policy = policy
        self._trials = trials
        self._is_calibrated = is_calibrated
        self._timed: list[tuple[StepShape, float]] = []  # from which nothing was learned yet

    def observe(self, seconds: float) -> float:
        """The planned step took so long; how much of that was the MTP block's part."""
        self._timed.append((self.shape, seconds))
        return self._part_of_drafts(self.shape, seconds)

    def _part_of_drafts(self, shape: StepShape, seconds: float) -> float:
        return min(self._policy.pass_seconds(shape.n_draft), 0.5 * seconds)

    def learn(self) -> bool:
        """From the steps since the last time; False: there were none."""
        timed, self._timed = self._timed, []
        for shape, seconds in timed:
            self._learn_price(shape, seconds)
        return bool(timed)

    def _learn_price(self, shape: StepShape, seconds: float) -> None:
        of_rows = seconds - self._part_of_drafts(shape, seconds)
        if shape.company is not None:
            empty = seconds - self._policy.look_seconds(shape.n_draft)
            self._passes.observe(shape.n_rows, shape.widest, shape.n_draft, empty)
            self._costs.observe(shape.n_rows, of_rows)
            if shape.company.n_rows:
                self._policy.observe(shape.company, shape.n_rows, shape.widest, of_rows)
            if shape.tokens is not None:
                self._trials.pay(shape.tokens, seconds)
        elif not self._is_calibrated:  # steps with prompts tell about larger sizes
            self._costs.observe(shape.n_rows, of_rows)
            self._policy.prices.learn_base(self._costs)
