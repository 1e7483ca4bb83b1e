"""pj_sample and the entries it points to as numpy records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

MAX_CANDIDATES = 1024  # PJ_MAX_CANDIDATES: best tokens among which the library chooses
MAX_SAMPLE_TOKENS = 1024  # PJ_MAX_SAMPLE_TOKENS: penalised tokens of a row, and biased ones

COUNT_DTYPE = np.dtype([("token", np.int32), ("count", np.int32)])
BIAS_DTYPE = np.dtype([("token", np.int32), ("bias", np.float32)])
SAMPLE_DTYPE = np.dtype(
    [
        ("seed", np.uint64),
        ("top_p", np.float64),
        ("min_p", np.float64),
        ("temperature", np.float32),
        ("repeat_penalty", np.float32),
        ("frequency_penalty", np.float32),
        ("presence_penalty", np.float32),
        ("top_k", np.int32),
        ("min_keep", np.int32),
        ("count_begin", np.int32),
        ("n_counts", np.int32),
        ("bias_begin", np.int32),
        ("n_biases", np.int32),
        ("index", np.int32),
        ("mask_begin", np.int32),
    ]
)
Records = npt.NDArray[Any]
Masks = npt.NDArray[np.uint32]
NO_MASK = -1  # as mask_begin: every token may be chosen


def no_samples() -> Records:
    return np.empty(0, SAMPLE_DTYPE)


def no_counts() -> Records:
    return np.empty(0, COUNT_DTYPE)


def no_biases() -> Records:
    return np.empty(0, BIAS_DTYPE)


def mask_words(n_vocab: int) -> int:
    """Words of a mask: bit t % 32 of word t // 32 says whether token t may be chosen."""
    return -(-n_vocab // 32)


def no_masks() -> Masks:
    return np.empty(0, np.uint32)

