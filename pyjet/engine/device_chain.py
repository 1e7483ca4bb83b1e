"""Which sampler chains the native step runs itself, and their parameters as it wants them (pj_sample)."""

from __future__ import annotations

import numpy as np

from pyjet.engine.chain import active_samplers, temperature_range
from pyjet.engine.request import SamplingParams
from pyjet.native.samples import (
    BIAS_DTYPE,
    MAX_CANDIDATES,
    MAX_SAMPLE_TOKENS,
    SAMPLE_DTYPE,
    Records,
)

DEVICE_SAMPLERS = ("penalties", "top_k", "top_p", "min_p", "temperature")
_FLOATS = ("temperature", "repeat_penalty", "frequency_penalty", "presence_penalty")


def device_sample(params: SamplingParams, biases: Records, n_vocab: int) -> Records | None:
    """SAMPLE_DTYPE[1] of a chain that the device can run, otherwise None; seed, index and ranges are left at 0.

    It runs DEVICE_SAMPLERS, in that order and each once, with a fixed temperature. It sorts no vocabulary, so
    something must leave few candidates. How many top_p leaves is seen in the step; what is certain is decided here.
    """
    active = active_samplers(params)
    is_fixed = "temperature" not in active or temperature_range(params) <= 0.0
    if not is_fixed or active != [name for name in DEVICE_SAMPLERS if name in active]:
        return None
    is_greedy = params.temperature <= 0.0 and "temperature" in active
    narrows = is_greedy or "top_p" in active or "min_p" in active
    is_narrow = "top_k" in active and params.top_k <= MAX_CANDIDATES
    if not (narrows or is_narrow):
        return None
    if "top_p" in active and "top_k" in active and MAX_CANDIDATES < params.top_k < n_vocab and not is_greedy:
        return None
    if "penalties" in active and not 0 < params.repeat_last_n <= MAX_SAMPLE_TOKENS:
        return None
    if len(biases) > MAX_SAMPLE_TOKENS or np.isnan(biases["bias"]).any():
        return None
    sample = _record(params, set(active))
    return sample if all(np.isfinite(sample[name]).all() for name in _FLOATS) else None


def _record(params: SamplingParams, active: set[str]) -> Records:
    sample = np.zeros(1, SAMPLE_DTYPE)
    most = np.iinfo(np.int32).max
    with np.errstate(over="ignore"):
        sample["top_p"] = params.top_p if "top_p" in active else 1.0
        sample["min_p"] = params.min_p if "min_p" in active else 0.0
        sample["temperature"] = params.temperature if "temperature" in active else 1.0
        sample["top_k"] = min(params.top_k, most) if "top_k" in active else 0
        sample["min_keep"] = min(max(0, params.min_keep), most)
        penalises = "penalties" in active
        sample["repeat_penalty"] = params.repeat_penalty if penalises else 1.0
        sample["frequency_penalty"] = params.frequency_penalty if penalises else 0.0
        sample["presence_penalty"] = params.presence_penalty if penalises else 0.0
    return sample


def merged_biases(pairs: tuple[tuple[int, float], ...], n_vocab: int) -> Records:
    """BIAS_DTYPE by ascending token, a token's biases added up; tokens outside the vocabulary are left out."""
    total: dict[int, np.float32] = {}
    with np.errstate(over="ignore", invalid="ignore"):
        for token, value in pairs:
            if 0 <= token < n_vocab:
                total[token] = total.get(token, np.float32(0)) + np.float32(value)
    return np.array(sorted(total.items()), BIAS_DTYPE)
