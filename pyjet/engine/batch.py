"""Writes a plan into the arrays of a StepBatch. Arrays are made once and reused: a decode step copies a few numbers."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from pyjet.engine.sample_rows import SampleRows
from pyjet.engine.sampling import Sampler
from pyjet.engine.sequence import Sequence
from pyjet.native.samples import Masks, Records, no_masks
from pyjet.native.step import (
    NO_DRAFTS,
    ROW_ARGMAX,
    ROW_LOGITS,
    ROW_SAMPLE,
    SEQ_DTYPE,
    SEQ_RESET,
    Int32Array,
    StepBatch,
    no_blocks,
)

Plan = Rows["tuple[Sequence, int]"]
CHOSEN = -1  # as the token after a row: the one that is chosen for it


@dataclass(frozen=True)
class DraftPlan:
    """How the MTP block takes part in a step. ``blocks``: ids of its head besides the lowest ones.

    ``is_sampled``: drafts of sequences that the step samples are drawn like their tokens.
    """

    blocks: Int32Array
    is_sampled: bool = False


@dataclass(frozen=True)
class DecodeStep:
    """A batch of decode rows only. It carries the next step too while the same sequences have as many there."""

    sequences: list[Sequence]
    layouts: list[tuple[int, int, int]]  # of each: version of its table, pages of it in the batch, rows
    drafts: DraftPlan | None
    batch: StepBatch
    sample_rows: SampleRows  # of the batch

    def fits(self, plan: Plan, drafts: DraftPlan | None) -> bool:
        return (
            len(plan) == len(self.sequences)
            and drafts is self.drafts
            and all(
                sequence is before and sequence.is_decoding and layout_of(sequence) == layout
                for (sequence, _), before, layout in zip(plan, self.sequences, self.layouts)
            )
        )

    def advance(self) -> StepBatch:
        """The rows that come next."""
        batch = self.batch
        batch.tokens[:] = [token for s in self.sequences for token in (s.generated[-1], *s.verifying)]
        batch.positions[:] = [p for s in self.sequences for p in range(s.n_computed, s.n_computed + s.n_rows)]
        batch.seqs["n_accept"] = [sequence.n_pending for sequence in self.sequences]
        batch.seqs["n_draft"] = [sequence.n_draft for sequence in self.sequences]
        if len(batch.samples):
            sampled = [s for s in self.sequences if flags_of(s.sampler) & ROW_SAMPLE]
            write_samples(self.sample_rows, sampled)
        return batch


def layout_of(sequence: Sequence) -> tuple[int, int, int]:
    """What decides about the shape of a decoding sequence's part of a batch."""
    return sequence.table_version, len(sequence.pages), sequence.n_rows


def write_samples(rows: SampleRows, sampled: Rows[Sequence]) -> tuple[Records, Records, Records]:
    """Samples, counts and biases of the sequences that the step samples."""
    return rows.write(
        [s.sampler for s in sampled], [s.verifying for s in sampled], [s.mask_row for s in sampled]
    )  # fmt: skip


def flags_of(sampler: Sampler) -> int:
    """Flags of a row from which a token is chosen."""
    if sampler.is_argmax:
        return ROW_ARGMAX
    return ROW_LOGITS if sampler.device_sample is None else ROW_SAMPLE


class BatchBuilder:
    """Builds one StepBatch at a time; the result is valid until the next ``build``."""

    def __init__(
        self, max_rows: int, max_seqs: int, page_tokens: int, max_spec: int = 0, masks: Masks | None = None
    ) -> None:
        """``masks``: uint32[rows, words], which the sequences' ``mask_row`` counts."""
        self._page_tokens = page_tokens
        self._masks = no_masks() if masks is None else masks.reshape(-1)
        self._tokens = np.zeros(max_rows, np.int32)
        self._next = np.zeros(max_rows, np.int32)
        self._positions = np.zeros(max_rows, np.int32)
        self._row_seq = np.zeros(max_rows, np.int32)
        self._row_flags = np.zeros(max_rows, np.uint32)
        self._seqs = np.zeros(max_seqs, SEQ_DTYPE)
        self._counting = np.arange(max_rows, dtype=np.int32)
        self._sample_rows = SampleRows(max_seqs * (max_spec + 1), 0 if masks is None else masks.shape[1])
        self._decode: DecodeStep | None = None

    def build(self, plan: Plan, drafts: DraftPlan | None = None) -> StepBatch:
        """The batch of a plan; sequences own the pages that their rows and drafts need. None: the MTP block rests."""
        if self._decode is not None and self._decode.fits(plan, drafts):
            return self._decode.advance()
        self._decode = None
        is_decoding = all(sequence.is_decoding for sequence, _ in plan)
        batch = self._write(plan, drafts)
        if is_decoding:
            sequences = [sequence for sequence, _ in plan]
            self._decode = DecodeStep(sequences, [layout_of(s) for s in sequences], drafts, batch, self._sample_rows)
        return batch

    def _write(self, plan: Plan, drafts: DraftPlan | None) -> StepBatch:
        row = n_pages = n_samples = 0
        tables = []
        sampled: list[Sequence] = []
        for index, (sequence, n_rows) in enumerate(plan):
            flags = self._write_rows(sequence, index, row, n_rows, with_guess=drafts is not None)
            table = sequence.page_table[: self._n_pages(sequence, n_rows)]
            self._seqs[index] = (
                sequence.state_slot, row, n_rows, sequence.n_speculative(n_rows), sequence.n_pending, n_pages,
                len(table), 0 if sequence.n_computed else SEQ_RESET, *NO_DRAFTS,
            )  # fmt: skip
            if drafts is not None:
                of_sequence = self._seqs[index]
                of_sequence["n_verify"], of_sequence["n_draft"] = len(sequence.verifying), sequence.n_draft
                if drafts.is_sampled and flags & ROW_SAMPLE:
                    of_sequence["draft_sample"] = n_samples
            if flags & ROW_SAMPLE:
                sampled.append(sequence)
                n_samples += sequence.n_rows
            tables.append(table)
            n_pages += len(table)
            row += n_rows
        return StepBatch(
            self._tokens[:row],
            self._positions[:row],
            self._row_seq[:row],
            self._row_flags[:row],
            self._seqs[: len(plan)],
            tables[0] if len(tables) == 1 else np.concatenate(tables),
            *write_samples(self._sample_rows, sampled),
            None if drafts is None else self._next[:row],
            no_blocks() if drafts is None else drafts.blocks,
            self._masks,
        )

    def _n_pages(self, sequence: Sequence, n_rows: int) -> int:
        """Pages of a sequence that the step may read or write; all it has, when the next step is likely to be alike."""
        if sequence.is_decoding:
            return len(sequence.pages)
        return -(-(sequence.n_computed + n_rows + sequence.n_draft) // self._page_tokens)

    def _write_rows(self, sequence: Sequence, index: int, row: int, n_rows: int, *, with_guess: bool) -> int:
        """Returns the flags of the rows from which a token is chosen: the last one of what it reads, or all."""
        first = sequence.n_computed
        end = row + n_rows
        np.add(self._counting[:n_rows], first, out=self._positions[row:end])
        self._row_seq[row:end] = index
        if sequence.is_decoding:
            self._tokens[row:end] = [sequence.generated[-1], *sequence.verifying]
            first_chosen = row
        else:
            self._tokens[row:end] = sequence.tokens[first : first + n_rows]
            self._next[row:end] = sequence.tokens[first + 1 : first + n_rows + 1]
            self._row_flags[row:end] = 0
            if first + n_rows < sequence.n_to_read:
                return 0
            first_chosen = end - 1
        flags = flags_of(sequence.sampler)
        self._row_flags[first_chosen:end] = flags | ROW_ARGMAX if with_guess and flags & ROW_LOGITS else flags
        self._next[first_chosen:end] = CHOSEN
        return flags
