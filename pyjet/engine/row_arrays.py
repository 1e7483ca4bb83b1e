"""The arrays that batches are written into, made once; and how the MTP block takes part in a step."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from pyjet.engine.sample_rows import SampleRows
from pyjet.engine.sampling import Sampler
from pyjet.engine.sequence import Sequence
from pyjet.native.step import ROW_ARGMAX, ROW_LOGITS, ROW_SAMPLE, SEQ_DTYPE, Int32Array, StepBatch, no_blocks

Plan = Rows["tuple[Sequence, int]"]
CHOSEN = -1  # as the token after a row: the one that is chosen for it


@dataclass(frozen=True)
class DraftPlan:
    """How the MTP block takes part in a step. ``blocks``: ids of its head besides the lowest ones.

    ``is_sampled``: drafts of sequences that the step samples are drawn like their tokens.
    """

    blocks: Int32Array
    is_sampled: bool = False


class RowArrays:
    """Room for the rows and sequences of one step; field meanings are those of StepBatch."""

    def __init__(self, max_rows: int, max_seqs: int, max_spec: int) -> None:
        self.tokens = np.zeros(max_rows, np.int32)
        self.next = np.zeros(max_rows, np.int32)
        self.positions = np.zeros(max_rows, np.int32)
        self.row_seq = np.zeros(max_rows, np.int32)
        self.row_flags = np.zeros(max_rows, np.uint32)
        self.seqs = np.zeros(max_seqs, SEQ_DTYPE)
        self.samples = SampleRows(max_seqs * (max_spec + 1))

    def batch(
        self, n_rows: int, tables: list[Int32Array], sampled: list[Sequence], drafts: DraftPlan | None
    ) -> StepBatch:
        """What was written. ``tables``: pages of each sequence; ``sampled``: those that the device samples."""
        return StepBatch(
            self.tokens[:n_rows],
            self.positions[:n_rows],
            self.row_seq[:n_rows],
            self.row_flags[:n_rows],
            self.seqs[: len(tables)],
            tables[0] if len(tables) == 1 else np.concatenate(tables),
            *self.samples.write([s.sampler for s in sampled], [s.verifying for s in sampled]),
            None if drafts is None else self.next[:n_rows],
            no_blocks() if drafts is None else drafts.blocks,
        )


def flags_of(sampler: Sampler, *, with_guess: bool = False) -> int:
    """Flags of a row from which a token is chosen. ``with_guess``: the MTP block needs to know one in any case."""
    if sampler.is_argmax:
        return ROW_ARGMAX
    if sampler.device_sample is not None:
        return ROW_SAMPLE
    return ROW_LOGITS | ROW_ARGMAX if with_guess else ROW_LOGITS
