"""The end of every chain: one candidate is drawn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.engine.candidates import Candidates, Float32Array, IntArray
from pyjet.engine.noise import exponentials, uniforms

_FEW = 64  # one of the likeliest candidates arrives early
_BLOCK = 16384  # candidates whose numbers stay in a processor's cache


def draw(candidates: Candidates, seed: int, index: int) -> tuple[int, Float32Array]:
    """Which candidate is drawn as token ``index`` of an answer, and the float32 weights it was drawn by.

    Weights are the softmax of what is left, not normalised. The candidate with the least noise / weight wins: it is
    the native step's draw, whatever the order of the candidates.
    """
    weights: Float32Array = np.exp(candidates.logits - candidates.logits.max())
    tokens: IntArray = np.arange(len(candidates)) if candidates.ids is None else candidates.ids
    if len(candidates) <= _BLOCK:
        return int(_arrivals(tokens, weights, seed, index).argmin()), weights
    contenders = _contenders(tokens, weights, seed, index)
    first = _arrivals(tokens[contenders], weights[contenders], seed, index).argmin()
    return int(contenders[first]), weights


def _arrivals(tokens: IntArray, weights: Float32Array, seed: int, index: int) -> npt.NDArray[np.float64]:
    """float64[n]: noise / weight."""
    arrivals = exponentials(seed, index, tokens)
    with np.errstate(divide="ignore"):
        arrivals /= weights  # never where a weight is 0
    return arrivals


def _contenders(tokens: IntArray, weights: Float32Array, seed: int, index: int) -> npt.NDArray[np.intp]:
    """Ascending places of those that can be first, which spares the logarithms of the others.

    -ln(u) is at least 1 - u, so an arrival before ``time`` needs 1 - u < time * weight.
    """
    likely = np.flatnonzero(weights > 0.1)[:_FEW]
    time = float(_arrivals(tokens[likely], weights[likely], seed, index).min())
    found = []
    for begin in range(0, len(tokens), _BLOCK):
        missing = 1.0 - uniforms(seed, index, tokens[begin : begin + _BLOCK])
        bounds = weights[begin : begin + _BLOCK] * (time * (1 + 1e-6)) + 2.0**-50
        found.append(begin + np.flatnonzero(missing <= bounds))
    return np.concatenate(found)
