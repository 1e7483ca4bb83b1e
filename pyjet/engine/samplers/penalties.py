"""Penalties for tokens that occurred: repeat, frequency and presence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pyjet.engine.candidates import Candidates, Float32Array


def penalties(
    candidates: Candidates, counts: Mapping[int, int], repeat: float, frequency: float, presence: float
) -> None:
    """Make seen tokens less likely. ``counts``: how often each token in the window occurs."""
    tokens = np.fromiter(counts.keys(), np.intp, len(counts))
    at, times = places(candidates, tokens, np.fromiter(counts.values(), np.float32, len(counts)))
    if len(at) == 0:
        return
    logits = candidates.logits[at]
    factor = np.float32(repeat)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are none are noticed at the end of the chain
        logits = np.where(logits <= 0, logits * factor, logits / factor)
        logits = logits - (times * np.float32(frequency) + np.float32(presence))
    replace_logits(candidates, at, logits)


def places(
    candidates: Candidates, tokens: npt.NDArray[np.intp], values: Float32Array
) -> tuple[npt.NDArray[np.intp], Float32Array]:
    """Where those of ``tokens`` (each once) are that are candidates, and their values: intp[n], float32[n]."""
    if candidates.ids is None or len(tokens) == 0:
        return tokens, values
    order = np.argsort(tokens)
    tokens, values = tokens[order], values[order]
    nearest = np.minimum(np.searchsorted(tokens, candidates.ids), len(tokens) - 1)
    at = np.flatnonzero(tokens[nearest] == candidates.ids)
    return at, values[nearest[at]]


def replace_logits(candidates: Candidates, at: npt.NDArray[np.intp], logits: Float32Array) -> None:
    """Other logits for the candidates at some places."""
    candidates.logits = candidates.logits.copy()
    candidates.logits[at] = logits
    candidates.is_sorted = False
