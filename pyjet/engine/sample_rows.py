"""The sampling parameters of a batch's rows, in arrays that are made once and passed to the native step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pyjet.engine.sampling import Sampler
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, MAX_SAMPLE_TOKENS, NO_MASK, SAMPLE_DTYPE, Records

Rows = Sequence[tuple[Sampler, list[int]]]  # each sampler has a row for its next token and one behind each draft


class SampleRows:
    """One record for each row, in the order of the rows. Its counts, and the biases of a sampler, have their place."""

    def __init__(self, max_rows: int, words: int = 0) -> None:
        """``words``: of a mask."""
        self._samples: Records = np.zeros(max_rows, SAMPLE_DTYPE)
        self._indices, self._n_counts = self._samples["index"], self._samples["n_counts"]
        self._counts: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, COUNT_DTYPE)
        self._biases: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, BIAS_DTYPE)
        self._begins = np.arange(max_rows, dtype=np.int32) * MAX_SAMPLE_TOKENS
        self._mask_begins = np.arange(max_rows, dtype=np.int32) * words
        self._masked: list[tuple[int, int]] = []  # as in the newest batch; empty: none of its rows has a mask
        self._words = words_of(self._samples)
        self._count_begins = self._samples["count_begin"]
        self._samplers: list[Sampler] = []
        self._common = words_of(np.zeros(0, SAMPLE_DTYPE))  # of the record of each of them
        self._layout: list[tuple[Sampler, int]] = []

    @property
    def arrays(self) -> tuple[Records, Records, Records]:
        """Samples, counts and biases."""
        return self._samples, self._counts, self._biases

    def lay_out(self, rows: Rows) -> tuple[int, int, int]:
        """How many samples, counts and biases of the arrays are those of a batch; they hold until the next call.

        A row behind drafts is as if these were accepted. What ``write_draws`` writes is still missing.
        """
        layout = [(sampler, len(drafts)) for sampler, drafts in rows]
        if layout != self._layout:
            self._write_parameters(layout)
            self._layout = layout
        n_rows = sum([1 + n_drafts for _, n_drafts in layout])
        return n_rows, n_rows * MAX_SAMPLE_TOKENS, n_rows * MAX_SAMPLE_TOKENS

    def write_draws(self, rows: Rows) -> None:
        """What is another for every token, of the same samplers with as many drafts as before.

        That is the token's index, and the tokens that are penalised.
        """
        indices: list[int] = []
        for sampler, drafts in rows:
            if sampler.penalises:
                self._write_counts(sampler, drafts, len(indices))
            indices += range(sampler.index, sampler.index + 1 + len(drafts))
        self._indices[: len(indices)] = indices

    def _write_parameters(self, layout: list[tuple[Sampler, int]]) -> None:
        """What stays the same while the same sequences have the same numbers of rows."""
        samplers = [sampler for sampler, _ in layout]
        if samplers != self._samplers:
            self._samplers = samplers
            self._common = words_of(records_of(samplers))
        of_rows = [i for i, (_, n_drafts) in enumerate(layout) for _ in range(1 + n_drafts)]
        n_rows = len(of_rows)
        self._common.take(of_rows, 0, self._words[:n_rows], "clip")  # any other mode takes a detour
        self._masked = []
        self._count_begins[:n_rows] = self._begins[:n_rows]
        begin = 0
        for sampler, n_drafts in layout:
            if n_biases := len(sampler.biases):
                first = self._begins[begin]
                self._samples["bias_begin"][begin : begin + 1 + n_drafts] = first
                self._biases[first : first + n_biases] = sampler.biases
            begin += 1 + n_drafts

    def write_masks(self, rows: list[tuple[int, int]]) -> None:
        """Of each sampler the first of its rows' masks (-1: it has none), and the number of its rows."""
        masked = rows if any(first >= 0 for first, _ in rows) else []
        if masked == self._masked:
            return
        self._masked = masked
        begin, begins = 0, self._samples["mask_begin"]
        for first, n_rows in rows:
            end = begin + n_rows
            begins[begin:end] = NO_MASK if first < 0 else self._mask_begins[first : first + n_rows]
            begin = end

    def _write_counts(self, sampler: Sampler, drafts: list[int], begin: int) -> None:
        for row in range(begin, begin + 1 + len(drafts)):
            counts = sampler.counts_after(drafts[: row - begin])
            assert counts is not None
            first = row * MAX_SAMPLE_TOKENS
            self._counts[first : first + len(counts)] = counts
            self._n_counts[row] = len(counts)


def words_of(records: Records) -> npt.NDArray[np.uint64]:
    """uint64[n, words]: the same memory, which is copied several times as fast as field by field."""
    return records.view(np.uint64).reshape(len(records), SAMPLE_DTYPE.itemsize // 8)


def records_of(samplers: list[Sampler]) -> Records:
    """SAMPLE_DTYPE[n]: what the samplers' rows have in common."""
    records: Records = np.zeros(len(samplers), SAMPLE_DTYPE)
    for i, sampler in enumerate(samplers):
        records[i : i + 1] = sampler.device_sample
        records["seed"][i] = sampler.seed
        records["n_biases"][i] = len(sampler.biases)
    records["mask_begin"] = NO_MASK
    return records
