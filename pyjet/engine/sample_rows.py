"""The sampling parameters of a batch's rows, in arrays that are made once and passed to the native step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyjet.engine.sampling import Sampler
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, MAX_SAMPLE_TOKENS, SAMPLE_DTYPE, Records


class SampleRows:
    """One record for each sampler, in the order of its rows. A record's counts and biases have their own places."""

    def __init__(self, max_rows: int) -> None:
        self._samples: Records = np.zeros(max_rows, SAMPLE_DTYPE)
        self._counts: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, COUNT_DTYPE)
        self._biases: Records = np.zeros(max_rows * MAX_SAMPLE_TOKENS, BIAS_DTYPE)
        self._samplers: Sequence[Sampler] = ()

    def write(self, samplers: Sequence[Sampler]) -> tuple[Records, Records, Records]:
        """Samples, counts and biases for a StepBatch; they hold until the next call."""
        self._samplers = samplers
        for i, sampler in enumerate(samplers):
            begin = i * MAX_SAMPLE_TOKENS
            n_biases = len(sampler.biases)
            self._biases[begin : begin + n_biases] = sampler.biases
            self._samples[i] = sampler.device_sample
            self._samples["count_begin"][i] = self._samples["bias_begin"][i] = begin
            self._samples["n_biases"][i] = n_biases
            self._samples["seed"][i] = sampler.seed
        self.update()
        n = len(samplers)
        n_entries = n * MAX_SAMPLE_TOKENS
        return self._samples[:n], self._counts[:n_entries], self._biases[:n_entries]

    def update(self) -> None:
        """What is another for every token: its index, and the tokens that are penalised."""
        if not self._samplers:
            return
        n = len(self._samplers)
        self._samples["index"][:n] = [sampler.index for sampler in self._samplers]
        for i, sampler in enumerate(self._samplers):
            if (counts := sampler.counts_after(())) is not None:
                begin = i * MAX_SAMPLE_TOKENS
                self._counts[begin : begin + len(counts)] = counts
                self._samples["n_counts"][i] = len(counts)
