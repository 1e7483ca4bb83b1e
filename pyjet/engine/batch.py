"""Writes a plan into the arrays of a StepBatch. Arrays are made once and reused: a decode step copies a few numbers."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np

from pyjet.engine.sequence import Sequence
from pyjet.native.step import ROW_ARGMAX, ROW_LOGITS, SEQ_DTYPE, SEQ_RESET, StepBatch


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

    def build(self, plan: Rows[tuple[Sequence, int]]) -> StepBatch:
        """The batch of a plan. Sequences own the pages that their rows need."""
        row = 0
        n_pages = 0
        tables = []
        for index, (sequence, n_rows) in enumerate(plan):
            first = sequence.n_computed
            self._write_rows(sequence, index, row, n_rows)
            flags = SEQ_RESET if first == 0 else 0
            n_used = -(-(first + n_rows) // self._page_tokens)  # it may own more than that
            self._seqs[index] = (sequence.slot, row, n_rows, 0, 0, n_pages, n_used, flags)
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
        )

    def _write_rows(self, sequence: Sequence, index: int, row: int, n_rows: int) -> None:
        first = sequence.n_computed
        end = row + n_rows
        if sequence.is_decoding:
            self._tokens[row] = sequence.generated[-1]
            self._positions[row] = first
            self._row_seq[row] = index
        else:
            self._tokens[row:end] = sequence.to_read[first : first + n_rows]
            np.add(self._counting[:n_rows], first, out=self._positions[row:end])
            self._row_seq[row:end] = index
            self._row_flags[row:end] = 0
            if first + n_rows < sequence.n_to_read:
                return
        self._row_flags[end - 1] = ROW_ARGMAX if sequence.sampler.is_argmax else ROW_LOGITS
