"""How many drafts the MTP block makes in a step, and whether it takes part in it at all."""

from __future__ import annotations

from collections.abc import Sequence as Items

from pyjet.engine.draft_policy import Company, DraftPolicy
from pyjet.engine.guesses import Guesses

REPLAN_STEPS = 4  # it is thought over so often, and when sequences come or go
PROBE_STEPS = 32  # in a row without drafts, before some are made to see whether they would be right by now
PROBE_DRAFTS = 2
WARM_STEPS = 64  # in a row without drafts, before its KV is no longer kept up to date
RUN = 0.5  # a lookup whose last draft is so likely to be right goes on, and needs no other drafts


class DraftDepth:
    """The number that makes most tokens per second, ``most`` at most; once in a while some to learn from.

    Drafts cost time even when they are not verified, so when they do not pay there are none. KV that was not kept up
    to date has gaps then; they only make the next drafts a little worse.
    """

    def __init__(self, policy: DraftPolicy, most: int) -> None:
        self._policy = policy
        self._most = most
        self._depth = 0
        self._n_steps = self._n_resting = self._n_sequences = 0

    @property
    def is_warm(self) -> bool:
        """Whether its KV is worth keeping up to date."""
        return self._most > 0 and self._n_resting < WARM_STEPS

    def choose(self, guesses: Items[Guesses], company: Company, room: int) -> int:
        """For the next step of these sequences."""
        if not self._most:
            return 0
        if self._n_steps % REPLAN_STEPS == 0 or self._n_sequences != len(guesses):
            self._depth = self._best(guesses, company, room)
        self._n_steps += 1
        self._n_sequences = len(guesses)
        self._n_resting = 0 if self._depth else self._n_resting + 1
        is_probe = self._n_resting and self._n_resting % PROBE_STEPS == 0
        return min(PROBE_DRAFTS, self._most) if is_probe else self._depth

    def _best(self, guesses: Items[Guesses], company: Company, room: int) -> int:
        runs, others = [], []
        for each in guesses:
            chances = each.chosen.chances
            if each.source == "lookup" and chances[-1] > RUN:
                runs.append(chances)
            else:
                others.append(each.acceptance.chance(range(self._most)))
        return self._policy.depth(others, runs, company, room) if others else 0
