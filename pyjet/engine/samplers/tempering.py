"""Samplers that make all candidates more or less equal: a temperature, or one that depends on the entropy."""

from __future__ import annotations

import numpy as np

from pyjet.engine.candidates import Candidates, Float32Array, surprises

_HOTTEST = float(np.finfo(np.float32).max)


def temperature(candidates: Candidates, t: float) -> None:
    """Divide logits by ``t``; for t <= 0 only the best (lowest id among equals) stays possible."""
    if t > 0.0:
        if t != 1.0:
            candidates.logits = _divided(candidates.logits, np.float32(t))
        return
    best = int(candidates.logits.argmax())
    greedy: Float32Array = np.full(len(candidates), -np.inf, np.float32)
    greedy[best] = candidates.logits[best]
    candidates.logits = greedy
    candidates.is_sorted = candidates.is_sorted and best == 0


def _divided(logits: Float32Array, t: np.float32) -> Float32Array:
    """Without a bound for ``t``: where quotients leave the range of numbers, it is their distances that matter."""
    best = logits.max()
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if np.isfinite(best / t):
            return np.divide(logits, t, dtype=np.float32)
        below: Float32Array = np.divide(logits - best, t, dtype=np.float32)
        below[logits == best] = 0
        return below


def dynamic_temperature(candidates: Candidates, t: float, spread: float, exponent: float) -> None:
    """A temperature within ``t`` -+ ``spread``, the higher the nearer the entropy is to that of equal candidates.

    For spread <= 0 it is ``t``; otherwise nothing is done to a single candidate. ``exponent`` is that of the entropy's
    share in the largest one possible.
    """
    if spread <= 0.0:
        temperature(candidates, t)
        return
    n = len(candidates)
    if n <= 1:
        return
    share = max(0.0, surprises(candidates.logits)[2]) / float(np.log(n))
    low, high = max(0.0, t - spread), min(t + spread, _HOTTEST)
    with np.errstate(over="ignore", divide="ignore"):
        tempered = low + (high - low) * float(np.power(np.float64(share), exponent))
    temperature(candidates, min(tempered, _HOTTEST))
