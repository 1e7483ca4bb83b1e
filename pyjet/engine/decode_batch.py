"""A batch of decode rows only. It carries the next step too while the same sequences have as many rows there."""

from __future__ import annotations

from pyjet.engine.row_arrays import CHOSEN, DraftPlan, Plan, RowArrays, flags_of
from pyjet.engine.sequence import Sequence
from pyjet.native.step import NO_DRAFTS, ROW_SAMPLE, StepBatch

Layout = tuple[Sequence, int, int, int]  # a sequence, version and pages of its table, its rows


class DecodeBatch:
    """What stays is written at the beginning; ``advance`` writes what each step changes: few numbers of each row."""

    def __init__(self, layouts: list[Layout], drafts: DraftPlan | None, arrays: RowArrays) -> None:
        self._drafts = drafts
        self._layouts = layouts
        self._sequences = [layout[0] for layout in layouts]
        self._samples = arrays.samples
        self._sampled: list[Sequence] = []
        self._batch = self._write(drafts, arrays)
        self._is_constrained = any(s.constraint is not None for s in self._sampled)
        self._n_accept, self._n_draft = self._batch.seqs["n_accept"], self._batch.seqs["n_draft"]

    def fits(self, layouts: list[Layout], drafts: DraftPlan | None) -> bool:
        """Whether a plan of these is of that kind. Who reads again after a preemption has another table."""
        return drafts is self._drafts and layouts == self._layouts

    def _write(self, drafts: DraftPlan | None, arrays: RowArrays) -> StepBatch:
        """Field by field for all sequences: that takes a fraction of the time of one after the other."""
        seqs: list[int] = []  # as StepArrays.seq_words: records take several times as long
        row_seq: list[int] = []
        row_flags: list[int] = []
        holders: list[tuple[Sequence, int, int]] = []
        n_pages = n_samples = 0
        for index, (sequence, version, n_held, n_rows) in enumerate(self._layouts):
            n_verify, flags = n_rows - 1, flags_of(sequence.sampler, with_guess=drafts is not None)
            of_drafts: tuple[int, ...] = NO_DRAFTS
            if drafts is not None:
                of_drafts = (n_verify, 0, n_samples if drafts.is_sampled and flags & ROW_SAMPLE else -1, 0)
            seqs += (sequence.state_slot, len(row_seq), n_rows, n_verify, 0, n_pages, n_held, 0, *of_drafts)
            holders.append((sequence, version, n_held))
            row_seq += [index] * n_rows
            row_flags += [flags] * n_rows
            n_pages += n_held
            if flags & ROW_SAMPLE:
                self._sampled.append(sequence)
                n_samples += n_rows
        arrays.seq_words[: len(seqs)] = seqs
        arrays.row_seq[: len(row_seq)] = row_seq
        arrays.row_flags[: len(row_seq)] = row_flags
        arrays.row_next[: len(row_seq)] = CHOSEN
        return arrays.write_batch(len(row_seq), holders, self._sampled, drafts)

    def advance(self) -> StepBatch:
        """The rows that come next."""
        tokens: list[int] = []
        positions: list[int] = []
        n_accept: list[int] = []
        n_draft: list[int] = []
        for sequence in self._sequences:
            drafts, first = sequence.verifying, sequence.n_computed
            tokens.append(sequence.generated[-1])
            tokens += drafts
            positions += range(first, first + 1 + len(drafts))
            n_accept.append(sequence.n_pending)
            n_draft.append(sequence.n_draft)
        self._batch.tokens[:] = tokens
        self._batch.positions[:] = positions
        self._n_accept[:] = n_accept
        if self._drafts is not None:
            self._n_draft[:] = n_draft
        if self._sampled:
            self._samples.write_draws([(s.sampler, s.verifying) for s in self._sampled])
        if self._is_constrained:
            self._samples.write_masks([(s.mask_row, s.n_rows) for s in self._sampled])
        return self._batch


def layouts_of(plan: Plan) -> list[Layout]:
    """What decides about the shape of a batch."""
    return [(sequence, sequence.table_version, len(sequence.pages), n_rows) for sequence, n_rows in plan]
