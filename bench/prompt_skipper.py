"""A stepper that skips most of a prompt, so that sequences of any length decode within a second.

Policy and page tables are the engine's own; only the arithmetic of prompt rows is left out. Pages and the state that
every sequence starts from must hold what a real prompt left there (bench.step_rows.fill).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pyjet.native import NativeEngine, StepBatch, StepResult
from pyjet.native.step import SEQ_RESET

KEPT_ROWS = 8  # of the rows of a sequence in a step, the last ones: no decoding sequence has more


class PromptSkipper:
    """Passes steps on to ``engine`` with at most KEPT_ROWS rows of each sequence.

    A sequence that begins takes the state of ``base_slot``. A step's time counts each skipped row with
    ``seconds_per_row``, so that prices learned from it stay right.
    """

    def __init__(self, engine: NativeEngine, base_slot: int, seconds_per_row: float) -> None:
        self._engine = engine
        self._base_slot = base_slot
        self._us_per_row = seconds_per_row * 1e6

    def __getattr__(self, name: str) -> Any:
        """Copies of pages and states."""
        return getattr(self._engine, name)

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        kept = kept_rows(batch.seqs["n_rows"])
        n_rows = batch.tokens.shape[0]
        if kept.shape[0] == n_rows:
            return self._engine.step(batch, meanwhile)
        result = self._engine.step(self._shortened(batch, kept), meanwhile)
        return replace(
            result,
            argmax=spread(result.argmax, kept, n_rows),
            sampled=spread(result.sampled, kept, n_rows),
            step_us=result.step_us + (n_rows - kept.shape[0]) * self._us_per_row,
        )

    def _shortened(self, batch: StepBatch, kept: npt.NDArray[np.int64]) -> StepBatch:
        seqs = batch.seqs.copy()
        seqs["n_rows"] = np.minimum(seqs["n_rows"], KEPT_ROWS)
        seqs["row_begin"] = np.cumsum(seqs["n_rows"]) - seqs["n_rows"]
        for seq in seqs[(seqs["flags"] & SEQ_RESET != 0) & (batch.seqs["n_rows"] > KEPT_ROWS)]:
            self._engine.state_reset(int(seq["state_slot"]))
            self._engine.state_copy(self._base_slot, int(seq["state_slot"]))
        seqs["flags"][batch.seqs["n_rows"] > KEPT_ROWS] &= ~np.uint32(SEQ_RESET)
        return StepBatch(
            batch.tokens[kept],
            batch.positions[kept],
            batch.row_seq[kept],
            batch.row_flags[kept],
            seqs,
            batch.page_table,
            batch.samples,
            batch.counts,
            batch.biases,
            None if batch.row_next is None else batch.row_next[kept],
            batch.draft_blocks,
        )


def kept_rows(counts: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Indices of the last KEPT_ROWS rows of each sequence; rows of a sequence adjoin, sequences are in order."""
    begins = np.cumsum(counts) - counts
    firsts = begins + np.maximum(counts - KEPT_ROWS, 0)
    parts = [np.arange(first, begin + count) for first, begin, count in zip(firsts, begins, counts)]
    return np.concatenate(parts).astype(np.int64)


def spread(values: npt.NDArray[np.int32], kept: npt.NDArray[np.int64], n_rows: int) -> npt.NDArray[np.int32]:
    """Values of the kept rows at their places among all, -1 elsewhere."""
    found = np.full(n_rows, -1, np.int32)
    found[kept] = values
    return found
