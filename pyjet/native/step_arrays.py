"""Arrays of many batches, one after the other: what is passed to the library is checked and addressed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pyjet.native import structs
from pyjet.native.samples import Masks, no_masks
from pyjet.native.step import SEQ_DTYPE, STEP_TRUNK, Int32Array, StepBatch, data_address, no_blocks, step_input


class StepArrays:
    """Room for ``max_rows`` rows of ``max_seqs`` sequences; field meanings are those of StepBatch.

    ``samples``, ``counts``, ``biases`` and ``masks`` are arrays of the caller, as StepBatch has them.
    """

    def __init__(
        self, max_rows: int, max_seqs: int, samples: npt.NDArray[Any], counts: npt.NDArray[Any],
        biases: npt.NDArray[Any], masks: Masks | None = None,
    ) -> None:  # fmt: skip
        self.tokens = np.zeros(max_rows, np.int32)
        self.positions = np.zeros(max_rows, np.int32)
        self.row_seq = np.zeros(max_rows, np.int32)
        self.row_flags = np.zeros(max_rows, np.uint32)
        self.row_next = np.zeros(max_rows, np.int32)
        self.seqs = np.zeros(max_seqs, SEQ_DTYPE)
        self.seq_words = self.seqs.view(np.int32)  # the same: field after field, sequence after sequence
        self._of_samples = samples, counts, biases
        self._masks = no_masks() if masks is None else masks
        self._blocks = self._no_blocks = no_blocks()
        self._page_table = np.zeros(1, np.int32)
        rows = self.tokens, self.positions, self.row_seq, self.row_flags
        whole = StepBatch(*rows, self.seqs, self._page_table, samples, counts, biases, self.row_next)
        whole = replace(whole, masks=self._masks)
        self._whole = step_input(whole, STEP_TRUNK, None, 0)

    def batch(
        self, n_rows: int, n_seqs: int, page_table: Int32Array, n_of_samples: tuple[int, int, int],
        draft_blocks: Int32Array | None, fill_masks: Callable[[], None] | None = None,
    ) -> StepBatch:  # fmt: skip
        """The first so many rows, sequences, and samples, counts and biases.

        ``draft_blocks``: None without drafts. ``fill_masks``: None for masks that are complete.
        """
        samples, counts, biases = self._of_samples
        n_samples, n_counts, n_biases = n_of_samples
        blocks = self._no_blocks if draft_blocks is None else draft_blocks
        batch = StepBatch(
            self.tokens[:n_rows],
            self.positions[:n_rows],
            self.row_seq[:n_rows],
            self.row_flags[:n_rows],
            self.seqs[:n_seqs],
            page_table,
            samples[:n_samples],
            counts[:n_counts],
            biases[:n_biases],
            None if draft_blocks is None else self.row_next[:n_rows],
            blocks,
            self._masks,
            fill_masks,
        )
        self._address(page_table, blocks)
        c_in = structs.StepIn.from_buffer_copy(self._whole)
        c_in.n_rows, c_in.n_seqs = n_rows, n_seqs
        c_in.n_samples, c_in.n_counts, c_in.n_biases = n_of_samples
        c_in.masks_late = int(fill_masks is not None)
        if draft_blocks is None:
            c_in.row_next = None
        batch.__dict__["c_trunk"] = c_in  # instead of the one that it would make itself
        return batch

    def _address(self, page_table: Int32Array, blocks: Int32Array) -> None:
        """Arrays of the caller that are often those of the batch before."""
        if page_table is not self._page_table:
            self._page_table = page_table
            self._whole.page_table, self._whole.n_page_entries = data_address(page_table), page_table.shape[0]
        if blocks is not self._blocks:
            self._blocks = blocks
            self._whole.draft_blocks, self._whole.n_draft_blocks = data_address(blocks), blocks.shape[0]
