"""Writes a plan into the arrays of a StepBatch. Arrays are made once and reused: a decode step copies a few numbers."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np

from pyjet.engine.sample_rows import SampleRows
from pyjet.engine.sampling import Sampler
from pyjet.engine.sequence import Sequence
from pyjet.native.step import NO_DRAFTS, ROW_ARGMAX, ROW_LOGITS, ROW_SAMPLE, SEQ_DTYPE, SEQ_RESET, StepBatch


@dataclass(frozen=True)
class DecodeStep:
    """A batch of decode rows only. It carries the next step too while the same sequences run on the same pages."""

    sequences: list[Sequence]
    tables: list[tuple[int, int]]  # of each: its version, and the positions below this are in the batch's page table
    batch: StepBatch
    sample_rows: SampleRows  # of the batch

    def fits(self, plan: Rows[tuple[Sequence, int]]) -> bool:
        return len(plan) == len(self.sequences) and all(
            sequence is before
            and sequence.is_decoding
            and sequence.table_version == version
            and sequence.n_computed < n_covered
            for (sequence, _), before, (version, n_covered) in zip(plan, self.sequences, self.tables)
        )

    def advance(self) -> StepBatch:
        """The rows that come next."""
        self.batch.tokens[:] = [sequence.generated[-1] for sequence in self.sequences]
        self.batch.positions[:] = [sequence.n_computed for sequence in self.sequences]
        self.sample_rows.update()
        return self.batch


def wanted(sampler: Sampler) -> int:
    """Flags of a row from which a token is chosen."""
    if sampler.is_argmax:
        return ROW_ARGMAX
    return ROW_LOGITS if sampler.device_sample is None else ROW_SAMPLE


class BatchBuilder:
    """Builds one StepBatch at a time; the result is valid until the next ``build``."""

    def __init__(self, max_rows: int, max_seqs: int, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._tokens = np.zeros(max_rows, np.int32)
        self._positions = np.zeros(max_rows, np.int32)
        self._row_seq = np.zeros(max_rows, np.int32)
        self._row_flags = np.zeros(max_rows, np.uint32)
        self._seqs = np.zeros(max_seqs, SEQ_DTYPE)
        self._counting = np.arange(max_rows, dtype=np.int32)
        self._sample_rows = SampleRows(max_seqs)
        self._decode: DecodeStep | None = None

    def build(self, plan: Rows[tuple[Sequence, int]]) -> StepBatch:
        """The batch of a plan. Sequences own the pages that their rows need."""
        if self._decode is not None and self._decode.fits(plan):
            return self._decode.advance()
        batch = self._write(plan)
        self._decode = None
        if all(sequence.is_decoding and not sequence.n_pending for sequence, _ in plan):
            n_covered = (batch.seqs["n_pages"] * self._page_tokens).tolist()
            sequences = [sequence for sequence, _ in plan]
            tables = [(sequence.table_version, n) for sequence, n in zip(sequences, n_covered)]
            self._decode = DecodeStep(sequences, tables, batch, self._sample_rows)
        return batch

    def _write(self, plan: Rows[tuple[Sequence, int]]) -> StepBatch:
        row = 0
        n_pages = 0
        tables = []
        samplers = []
        for index, (sequence, n_rows) in enumerate(plan):
            first = sequence.n_computed
            if self._write_rows(sequence, index, row, n_rows) & ROW_SAMPLE:
                samplers.append(sequence.sampler)
            flags = SEQ_RESET if first == 0 else 0
            n_used = -(-(first + n_rows) // self._page_tokens)  # it may own more than that
            n_spec = sequence.n_speculative(n_rows)
            self._seqs[index] = (
                sequence.state_slot, row, n_rows, n_spec, sequence.n_pending, n_pages, n_used, flags, *NO_DRAFTS
            )  # fmt: skip
            tables.append(sequence.page_table[:n_used])
            n_pages += n_used
            row += n_rows
        page_table = tables[0] if len(tables) == 1 else np.concatenate(tables)
        return StepBatch(
            self._tokens[:row],
            self._positions[:row],
            self._row_seq[:row],
            self._row_flags[:row],
            self._seqs[: len(plan)],
            page_table,
            *self._sample_rows.write(samplers),
        )

    def _write_rows(self, sequence: Sequence, index: int, row: int, n_rows: int) -> int:
        """Returns the flags of the last row, the only one from which a token may be chosen."""
        first = sequence.n_computed
        end = row + n_rows
        if sequence.is_decoding:
            self._tokens[row] = sequence.generated[-1]
            self._positions[row] = first
            self._row_seq[row] = index
        else:
            self._tokens[row:end] = sequence.tokens[first : first + n_rows]
            np.add(self._counting[:n_rows], first, out=self._positions[row:end])
            self._row_seq[row:end] = index
            self._row_flags[row:end] = 0
            if first + n_rows < sequence.n_to_read:
                return 0
        flags = wanted(sequence.sampler)
        self._row_flags[end - 1] = flags
        return flags
