"""The arrays that batches are written into, made once; and how the MTP block takes part in a step."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from pyjet.engine.mask_rows import MaskRows
from pyjet.engine.sample_rows import SampleRows
from pyjet.engine.sampling import Sampler
from pyjet.engine.sequence import Sequence
from pyjet.native.step import ROW_ARGMAX, ROW_LOGITS, ROW_SAMPLE, Int32Array, StepBatch
from pyjet.native.step_arrays import StepArrays

Plan = Rows["tuple[Sequence, int]"]
CHOSEN = -1  # as the token after a row: the one that is chosen for it


@dataclass(frozen=True)
class DraftPlan:
    """How the MTP block takes part in a step. ``blocks``: ids of its head besides the lowest ones.

    ``is_sampled``: drafts of sequences that the step samples are drawn like their tokens.
    """

    blocks: Int32Array
    is_sampled: bool = False


class RowArrays(StepArrays):
    """With the rows that are sampled, and the table of pages of the newest batch."""

    def __init__(self, max_rows: int, max_seqs: int, max_spec: int, masks: MaskRows | None = None) -> None:
        words = None if masks is None else masks.masks
        self.samples = SampleRows(max_seqs * (max_spec + 1), 0 if words is None else words.shape[1])
        super().__init__(max_rows, max_seqs, *self.samples.arrays, None if words is None else words.reshape(-1))
        self._mask_rows = masks
        self._holders: list[tuple[Sequence, int, int]] = []  # sequences, versions of their tables and pages of these
        self._table: Int32Array = np.empty(0, np.int32)

    def write_batch(
        self, n_rows: int, holders: list[tuple[Sequence, int, int]], sampled: list[Sequence], drafts: DraftPlan | None
    ) -> StepBatch:
        """What was written. ``holders``: (sequence, version of its table, pages); ``sampled``: by the device.

        The draws of the sampled rows are still to be written. Masks of answers with grammars are filled in the step.
        """
        if holders != self._holders:
            self._holders = holders
            self._table = np.concatenate([sequence.page_table[:n_pages] for sequence, _, n_pages in holders])
        n_of_samples = self.samples.lay_out([(s.sampler, s.verifying) for s in sampled])
        blocks = None if drafts is None else drafts.blocks
        return self.batch(n_rows, len(holders), self._table, n_of_samples, blocks, self._filling(holders))

    def _filling(self, holders: list[tuple[Sequence, int, int]]) -> Callable[[], None] | None:
        if self._mask_rows is None or all(sequence.constraint is None for sequence, _, _ in holders):
            return None
        return self._mask_rows.fill


def flags_of(sampler: Sampler, *, with_guess: bool = False) -> int:
    """Flags of a row from which a token is chosen. ``with_guess``: the MTP block needs to know one in any case."""
    if sampler.is_argmax:
        return ROW_ARGMAX
    if sampler.device_sample is not None:
        return ROW_SAMPLE
    return ROW_LOGITS | ROW_ARGMAX if with_guess else ROW_LOGITS
