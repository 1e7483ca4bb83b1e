"""How many drafts the MTP block makes in a step, and whether it takes part in it at all."""

from __future__ import annotations

from collections.abc import Sequence as Items

from pyjet.engine.draft_outlook import DraftOutlook
from pyjet.engine.draft_policy import Company, DraftPolicy
from pyjet.engine.draft_trials import DraftTrials, Trial
from pyjet.engine.guesses import Guesses

REPLAN_STEPS = 4  # it is thought over so often, and when sequences come or go
PROBE_STEPS = 32  # in a row without drafts, before some are made to see whether they would be right by now
PROBE_DRAFTS = 2
WARM_STEPS = 64  # in a row without drafts, before its KV is no longer kept up to date
RUN = 0.5  # a lookup whose last draft is so likely to be right goes on, and needs no other drafts


class DraftDepth:
    """The number that makes most tokens per second, ``most`` at most; once in a while some to learn from.

    Before a step ``choose``, and ``think`` when there is time. Drafts cost time even when they are not verified, so
    when they do not pay there are none. KV that was not kept up to date has gaps then; they only make the next drafts
    a little worse.
    """

    def __init__(self, policy: DraftPolicy, most: int) -> None:
        self._policy = policy
        self._most = most
        self._best = min(1, most)
        self._outlook = DraftOutlook(policy, most)
        self.trials = DraftTrials(policy, self._outlook)
        self.trial: Trial | None = None  # that the next step is part of
        self._verifies_all = False
        self._n_steps = self._n_resting = self._n_sequences = 0
        self._latest: tuple[Items[Guesses], Company, int] | None = None  # steps of this kind are thought over

    @property
    def is_warm(self) -> bool:
        """Whether its KV is worth keeping up to date."""
        return self._most > 0 and self._n_resting < WARM_STEPS

    @property
    def verifies_all(self) -> bool:
        """Whether up to ``latest`` drafts of each sequence are all worth a row in steps like the last ones."""
        return self._verifies_all and self.trial is None

    @property
    def latest(self) -> int:
        """The number that was best the last time that anyone decoded."""
        return self._best

    def choose(self, guesses: Items[Guesses], company: Company, room: int) -> int:
        """For the next step of these sequences, with ``room`` for drafts of all of them."""
        if not self._most:
            return 0
        self._latest = guesses, company, room
        if self._n_sequences != len(guesses):
            self._n_sequences, self._n_steps = len(guesses), 0
            self._outlook.forget()
            self._replan(guesses, company, room)
        self._n_steps += 1
        self._n_resting = 0 if self._best else self._n_resting + 1
        self.trial = self.trials.begin_step(is_possible=not company.n_prompt_rows)
        if self.trial is not None:
            return max(self._best, self.trial.n_draft)
        is_probe = self._n_resting and self._n_resting % PROBE_STEPS == 0
        return min(PROBE_DRAFTS, self._most) if is_probe else self._best

    def think(self) -> None:
        """What the newest steps taught comes to count."""
        if self._latest is None or self._n_steps % REPLAN_STEPS:
            return
        guesses, company, room = self._latest
        self._policy.refresh()
        self._replan(guesses, company, room)
        self.trials.consider(self._best, company, room)

    def _replan(self, guesses: Items[Guesses], company: Company, room: int) -> None:
        runs = [each.lookup.chances for each in guesses if is_run(each)]
        others = [self._chances(each) for each in guesses if not is_run(each)]
        self._verifies_all = False
        if not others:
            self._best = 0
            return
        self._outlook.add(others, runs, company, room)
        rates = self._outlook.rates
        self._best = max(range(len(rates)), key=rates.__getitem__)
        self._verifies_all = not runs and self._outlook.takes_all(self._best)

    def _chances(self, guesses: Guesses) -> list[float]:
        """Of the drafts that are there, and of as many more as there can be.

        Those that are there say how sure the block is of each, which is what makes it worth to have more of them than
        are verified on average.
        """
        chances, acceptance = list(guesses.mtp.chances), guesses.acceptance
        n = len(chances)
        rate = acceptance.rates[max(0, n - 1)]
        for position in range(n, self._most):
            rate = acceptance.rate_after(rate, position) if position else rate
            chances.append((chances[-1] if chances else 1.0) * rate)
        return chances


def is_run(guesses: Guesses) -> bool:
    """Whether a lookup is in the middle of something that was copied from before: it goes on without other drafts."""
    chances = guesses.lookup.chances
    return guesses.source == "lookup" and bool(chances) and chances[-1] > RUN
