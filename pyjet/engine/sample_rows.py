"""The sampling parameters of a batch's rows, in arrays that are made once and passed to the native step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyjet.engine.sampling import Sampler
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, MAX_SAMPLE_TOKENS, SAMPLE_DTYPE, Records


class SampleRows:
    """One record for each row, in the order of the rows. Its counts, and the biases of a sampler, have their place."""

    def __init__(self, max_rows: int) -> None:
        self._samples: Records = np.zeros(max_rows, SAMPLE_DTYPE)
        self._indices, self._n_counts = self._samples["index"], self._samples["n_counts"]
        self._counts: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, COUNT_DTYPE)
        self._biases: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, BIAS_DTYPE)
        self._begins = np.arange(max_rows, dtype=np.int32) * MAX_SAMPLE_TOKENS
        self._layout: list[tuple[Sampler, int]] = []

    def write(
        self, samplers: Sequence[Sampler], drafts: Sequence[list[int]] = ()
    ) -> tuple[Records, Records, Records]:
        """Samples, counts and biases for a StepBatch; they hold until the next call.

        Each sampler has a row for its next token and one behind each of its ``drafts``, as if these were accepted.
        """
        rows = list(zip(samplers, drafts or [[] for _ in samplers]))
        layout = [(sampler, len(of_sampler)) for sampler, of_sampler in rows]
        if layout != self._layout:
            self._write_parameters(layout)
            self._layout = layout
        n_rows = self.write_draws(rows)
        n_entries = n_rows * MAX_SAMPLE_TOKENS
        return self._samples[:n_rows], self._counts[:n_entries], self._biases[:n_entries]

    def write_draws(self, rows: Sequence[tuple[Sampler, list[int]]]) -> int:
        """What is another for every token, of the same samplers with as many drafts as before; how many rows that are.

        That is the token's index, and the tokens that are penalised.
        """
        indices: list[int] = []
        for sampler, drafts in rows:
            if sampler.penalises:
                self._write_counts(sampler, drafts, len(indices))
            indices += range(sampler.index, sampler.index + 1 + len(drafts))
        self._indices[: len(indices)] = indices
        return len(indices)

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

    def _write_counts(self, sampler: Sampler, drafts: list[int], begin: int) -> None:
        for row in range(begin, begin + 1 + len(drafts)):
            counts = sampler.counts_after(drafts[: row - begin])
            assert counts is not None
            first = row * MAX_SAMPLE_TOKENS
            self._counts[first : first + len(counts)] = counts
            self._n_counts[row] = len(counts)
