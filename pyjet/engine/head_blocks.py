"""The MTP block's part in steps to come: which ids its head looks at, for those that want drafts."""

from __future__ import annotations

import numpy as np

from pyjet.engine.draft_blocks import RecentBlocks, merged
from pyjet.engine.row_arrays import DraftPlan, Plan

BLOCK_STEPS = 4  # new blocks of the draft head count after so many


class HeadBlocks:
    """Keeps the same plan as long as it can: another one makes a batch of its own necessary."""

    def __init__(self, *, is_sampled: bool) -> None:
        self._plan = DraftPlan(np.empty(0, np.int32), is_sampled)
        self._wanting: list[int] = []  # tasks whose blocks are in the plan,
        self._recents: list[RecentBlocks] = []  # these
        self._versions: list[int] = []  # as of then
        self._n_thoughts = 0

    def plan_for(self, plan: Plan) -> DraftPlan:
        """The plan of before while those that want drafts are the same, or one with their newest blocks."""
        wanting = [sequence.id_task for sequence, _ in plan if sequence.n_draft]
        if wanting and wanting != self._wanting:
            self._wanting = wanting
            of_all = [s.guesses.blocks for s, _ in plan if s.n_draft and s.guesses is not None]
            self._recents = [blocks for blocks in of_all if blocks is not None]
            self._merge()
        return self._plan

    def think(self) -> None:
        """Once in a few steps: look for new blocks. There is time while a step computes."""
        self._n_thoughts += 1
        if self._n_thoughts % BLOCK_STEPS == 0 and [recent.version for recent in self._recents] != self._versions:
            self._merge()

    def _merge(self) -> None:
        self._versions = [recent.version for recent in self._recents]
        blocks = merged(self._recents)
        if not np.array_equal(blocks, self._plan.blocks):
            self._plan = DraftPlan(blocks, self._plan.is_sampled)
