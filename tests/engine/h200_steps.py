"""Step times of the 27B model as measured on an H200, and agents that share it: no wall clock, no rows computed."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np

from pyjet.engine.client import EngineLimits
from pyjet.engine.draft_costs import RESTS
from pyjet.engine.request import GenerationRequest
from pyjet.engine.scheduler import plan
from pyjet.engine.sequence import Sequence
from pyjet.engine.step_budget import StepBudget
from pyjet.native.step import StepBatch, StepResult

# rows: milliseconds with all rows at position 200, and at position 20,000; more than 512 rows at the speed of 512
MEASURED = {
    **{1: (6.5, 6.8), 8: (7.0, 8.1), 16: (8.3, 9.8), 24: (9.1, 11.4), 32: (11.4, 14.0), 48: (13.1, 16.3)},
    **{64: (14.7, 18.9), 96: (24.7, 30.7), 128: (27.1, 35.2), 192: (39.3, 58.1), 256: (51.4, 69.7)},
    **{384: (80.8, 109.7), 512: (108.8, 137), 768: (163, 206), 1024: (218, 274)},
}
SHALLOW, DEEP = 200, 20_000
# What the MTP block adds, in milliseconds: its KV, the first draft, each further one; an estimate.
DRAFTS = (0.02, 0.24, 0.2)
LIMITS = EngineLimits(n_slots=8, n_ctx_slot=65_536, n_ctx_total=262_144, n_vocab=1000, max_rows=512)


def step_seconds(n_rows: int, depth: float, *, stairs: bool) -> float:
    """``depth``: mean position. Between measured row counts: the next one's time, or on a line between the two."""
    counts = list(MEASURED)
    at = bisect_left(counts, n_rows)

    def at_count(index: int) -> float:
        shallow, deep = MEASURED[counts[index]]
        return shallow + (deep - shallow) * (depth - SHALLOW) / (DEEP - SHALLOW)

    if stairs or counts[at] == n_rows:
        return at_count(at) * 1e-3
    part = (n_rows - counts[at - 1]) / (counts[at] - counts[at - 1])
    return (at_count(at - 1) * (1 - part) + at_count(at) * part) * 1e-3


def draft_seconds(n_draft: int) -> float:
    """Of the MTP block's part in a step; RESTS: it has none."""
    if n_draft == RESTS:
        return 0.0
    kv, first, more = DRAFTS
    return (kv + (first + (n_draft - 1) * more if n_draft else 0.0)) * 1e-3


class H200:
    """Stands in for the engine when it is calibrated."""

    def step(self, batch: StepBatch) -> StepResult:
        seconds = step_seconds(len(batch.tokens), float(np.mean(batch.positions)), stairs=True)
        seconds += draft_seconds(RESTS if batch.row_next is None else int(batch.seqs["n_draft"].max()))
        empty = np.empty((0, 1), np.float32)
        return StepResult(empty, empty, np.empty(0, np.int32), np.empty(0, np.int32), seconds * 1e6)


def agent(number: int, n_prompt: int, *, priority: int = 0, n_computed: int = 0) -> Sequence:
    request = GenerationRequest(str(number), (1,) * n_prompt, priority=priority)
    sequence = Sequence(request, number, 0.0, n_prompt + 1000, 64, LIMITS.n_vocab)
    sequence.n_computed = n_computed
    return sequence


@dataclass
class Shared:
    """What happened while agents shared the card."""

    seconds: list[float] = field(default_factory=list)  # of each step
    rows: list[dict[int, int]] = field(default_factory=list)  # of each step, by agent

    @property
    def total(self) -> float:
        return sum(self.seconds)

    def least_share(self, window: float, alone: float) -> float:
        """Least share of its speed that a decoder had in any stretch of steps of at least ``window`` seconds."""
        times = np.concatenate([[0.0], np.cumsum(self.seconds)])
        ends = np.searchsorted(times, times + window)
        return min(
            ((end - begin) * alone / (times[end] - times[begin]) for begin, end in enumerate(ends) if end < len(times)),
            default=1.0,
        )


def share_card(agents: list[Sequence], budget: StepBudget, *, stairs: bool = True, n_steps: int = 100_000) -> Shared:
    """Until all prompts are read, or for ``n_steps``."""
    shared = Shared()
    while any(not s.is_decoding for s in agents) and len(shared.seconds) < n_steps:
        planned = plan(agents, budget.max_rows, budget)
        n_rows = sum(n for _, n in planned)
        depth = sum(n * (s.n_computed + (n - 1) / 2) for s, n in planned) / n_rows
        seconds = step_seconds(n_rows, depth, stairs=stairs)
        for sequence, n in planned:
            sequence.advance(n)
        budget.observe(n_rows, seconds)
        shared.seconds.append(seconds)
        shared.rows.append({s.id_task: n for s, n in planned})
    return shared
