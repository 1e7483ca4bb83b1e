"""Writes a plan into the arrays of a StepBatch. Arrays are made once and reused: a decode step copies a few numbers."""

from __future__ import annotations

import numpy as np

from pyjet.engine.decode_batch import DecodeBatch, layouts_of
from pyjet.engine.mask_rows import MaskRows
from pyjet.engine.row_arrays import CHOSEN, DraftPlan, Plan, RowArrays, flags_of
from pyjet.engine.sequence import Sequence
from pyjet.native.step import NO_DRAFTS, ROW_HIDDEN, ROW_SAMPLE, SEQ_RESET, StepBatch


class BatchBuilder:
    """Builds one StepBatch at a time; the result is valid until the next ``build``."""

    def __init__(
        self, max_rows: int, max_seqs: int, page_tokens: int, max_spec: int = 0, masks: MaskRows | None = None
    ) -> None:
        self._page_tokens = page_tokens
        self._arrays = RowArrays(max_rows, max_seqs, max_spec, masks)
        self._counting = np.arange(max_rows, dtype=np.int32)
        self._decode: DecodeBatch | None = None

    def build(self, plan: Plan, drafts: DraftPlan | None = None) -> StepBatch:
        """The batch of a plan; sequences own the pages that their rows and drafts need. None: the MTP block rests."""
        layouts = layouts_of(plan)
        if self._decode is None or not self._decode.fits(layouts, drafts):
            self._decode = None
            if not all(sequence.is_decoding for sequence, _ in plan):
                return self._write(plan, drafts)
            self._decode = DecodeBatch(layouts, drafts, self._arrays)
        return self._decode.advance()

    def _write(self, plan: Plan, drafts: DraftPlan | None) -> StepBatch:
        row = n_pages = n_samples = 0
        holders: list[tuple[Sequence, int, int]] = []
        sampled: list[Sequence] = []
        for index, (sequence, n_rows) in enumerate(plan):
            flags = self._write_rows(sequence, index, row, n_rows, with_guess=drafts is not None)
            n_held = self._n_pages(sequence, n_rows)
            self._arrays.seqs[index] = (
                sequence.state_slot, row, n_rows, sequence.n_speculative(n_rows), sequence.n_pending, n_pages,
                n_held, 0 if sequence.n_computed else SEQ_RESET, *NO_DRAFTS,
            )  # fmt: skip
            if drafts is not None:
                of_sequence = self._arrays.seqs[index]
                of_sequence["n_verify"], of_sequence["n_draft"] = len(sequence.verifying), sequence.n_draft
                if drafts.is_sampled and flags & ROW_SAMPLE:
                    of_sequence["draft_sample"] = n_samples
            if flags & ROW_SAMPLE:
                sampled.append(sequence)
                n_samples += sequence.n_rows
            holders.append((sequence, sequence.table_version, n_held))
            n_pages += n_held
            row += n_rows
        batch = self._arrays.write_batch(row, holders, sampled, drafts)
        self._arrays.samples.write_draws([(s.sampler, s.verifying) for s in sampled])
        self._arrays.samples.write_masks([(s.mask_row, s.n_rows) for s in sampled])
        return batch

    def _n_pages(self, sequence: Sequence, n_rows: int) -> int:
        """Pages of a sequence that the step may read or write."""
        return -(-(sequence.n_computed + n_rows + sequence.n_draft) // self._page_tokens)

    def _write_rows(self, sequence: Sequence, index: int, row: int, n_rows: int, *, with_guess: bool) -> int:
        """Returns the flags of the rows from which a token is chosen: the last one of what it reads, or all."""
        arrays, first, end = self._arrays, sequence.n_computed, row + n_rows
        np.add(self._counting[:n_rows], first, out=arrays.positions[row:end])
        arrays.row_seq[row:end] = index
        if sequence.is_decoding:
            arrays.tokens[row:end] = [sequence.generated[-1], *sequence.verifying]
            first_chosen = row
        else:
            arrays.tokens[row:end] = sequence.tokens[first : first + n_rows]
            arrays.row_next[row:end] = sequence.tokens[first + 1 : first + n_rows + 1]
            arrays.row_flags[row:end] = 0
            if sequence.pool is not None:
                begin, stop = sequence.pool.wanted(first, n_rows)
                arrays.row_flags[row + begin - first : row + stop - first] = ROW_HIDDEN
            if not sequence.n_chosen(n_rows):
                return 0
            first_chosen = end - 1
        flags = flags_of(sequence.sampler, with_guess=with_guess)
        arrays.row_flags[first_chosen:end] = flags
        arrays.row_next[first_chosen:end] = CHOSEN
        return flags
