"""The sampling parameters of a batch's rows, in arrays that are made once and passed to the native step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyjet.engine.sampling import Sampler
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, MAX_SAMPLE_TOKENS, NO_MASK, SAMPLE_DTYPE, Records


class SampleRows:
    """One record for each row, in the order of the rows. Its counts, and the biases of a sampler, have their place."""

    def __init__(self, max_rows: int, words: int = 0) -> None:
        """``words``: of a mask."""
        self._samples: Records = np.zeros(max_rows, SAMPLE_DTYPE)
        self._counts: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, COUNT_DTYPE)
        self._biases: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, BIAS_DTYPE)
        self._begins = np.arange(max_rows, dtype=np.int32) * MAX_SAMPLE_TOKENS
        self._mask_begins = np.arange(max_rows, dtype=np.int32) * words
        self._layout: list[tuple[Sampler, int]] = []

    def write(
        self, samplers: Sequence[Sampler], drafts: Sequence[list[int]] = (), mask_rows: Sequence[int] = ()
    ) -> tuple[Records, Records, Records]:
        """Samples, counts and biases for a StepBatch; they hold until the next call.

        Each sampler has a row for its next token and one behind each of its ``drafts``, as if these were accepted.
        ``mask_rows``: of each the first of its rows' masks, -1: it has none.
        """
        drafts = drafts or [[] for _ in samplers]
        layout = [(sampler, len(of_sampler)) for sampler, of_sampler in zip(samplers, drafts)]
        if layout != self._layout:
            self._write_parameters(layout)
            self._layout = layout
        begin = 0
        for sampler, of_sampler in zip(samplers, drafts):
            self._write_draws(sampler, of_sampler, begin)
            begin += 1 + len(of_sampler)
        self._write_masks(layout, mask_rows)
        n_entries = begin * MAX_SAMPLE_TOKENS
        return self._samples[:begin], self._counts[:n_entries], self._biases[:n_entries]

    def _write_parameters(self, layout: list[tuple[Sampler, int]]) -> None:
        """What stays the same while the same sequences have the same numbers of rows."""
        begin = 0
        for sampler, n_drafts in layout:
            end = begin + 1 + n_drafts
            of_rows = self._samples[begin:end]
            of_rows[:] = sampler.device_sample
            of_rows["seed"] = sampler.seed
            of_rows["count_begin"] = self._begins[begin:end]
            of_rows["bias_begin"] = first = self._begins[begin]
            of_rows["n_biases"] = n_biases = len(sampler.biases)
            self._biases[first : first + n_biases] = sampler.biases
            begin = end

    def _write_masks(self, layout: list[tuple[Sampler, int]], mask_rows: Sequence[int]) -> None:
        begins = self._samples["mask_begin"]
        begin = 0
        for (_, n_drafts), row in zip(layout, mask_rows or [-1] * len(layout)):
            end = begin + 1 + n_drafts
            begins[begin:end] = NO_MASK if row < 0 else self._mask_begins[row : row + end - begin]
            begin = end

    def _write_draws(self, sampler: Sampler, drafts: list[int], begin: int) -> None:
        """What is another for every token: its index, and the tokens that are penalised."""
        n_rows = 1 + len(drafts)
        self._samples["index"][begin : begin + n_rows] = range(sampler.index, sampler.index + n_rows)
        for i in range(n_rows):
            if (counts := sampler.counts_after(drafts[:i])) is None:
                break
            first = (begin + i) * MAX_SAMPLE_TOKENS
            self._counts[first : first + len(counts)] = counts
            self._samples["n_counts"][begin + i] = len(counts)
