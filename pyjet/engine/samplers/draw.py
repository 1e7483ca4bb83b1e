"""The end of every chain: one candidate is drawn."""

from __future__ import annotations

import numpy as np

from pyjet.engine.candidates import Candidates, Float32Array
from pyjet.engine.noise import exponentials


def draw(candidates: Candidates, seed: int, index: int) -> tuple[int, Float32Array]:
    """Which candidate is drawn as token ``index`` of an answer, and the float32 weights it was drawn by.

    Weights are the softmax of what is left, not normalised. The candidate with the least noise / weight wins: it is
    the native step's draw, whatever the order of the candidates.
    """
    weights: Float32Array = np.exp(candidates.logits - candidates.logits.max())
    tokens = np.arange(len(candidates)) if candidates.ids is None else candidates.ids
    arrivals = exponentials(seed, index, tokens)
    with np.errstate(divide="ignore"):
        arrivals /= weights  # never where a weight is 0
    return int(arrivals.argmin()), weights
