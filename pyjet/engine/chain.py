"""The samplers: each narrows or reshapes a set of Candidates. Semantics are those of llama.cpp's llama-sampler.cpp."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pyjet.engine.candidates import Candidates, Float32Array, softmax
from pyjet.engine.noise import exponentials

_FEW = 256  # how many of the best top_p looks at first: nearly always enough
_BINS = 256  # of a quarter each, by how far a logit is below the best


def top_k(candidates: Candidates, k: int) -> None:
    """Keep the ``k`` best; off for k <= 0."""
    if k <= 0:
        return
    if candidates.is_sorted:
        candidates.cut(k)
    else:
        candidates.keep(candidates.best(k), is_sorted=True)


def top_p(candidates: Candidates, p: float, min_keep: int) -> None:
    """Keep the smallest best-first set with total probability >= p, at least max(1, min_keep); off for p >= 1."""
    if p >= 1.0:
        return
    probs = softmax(candidates.logits)
    for size in (lambda: _FEW, lambda: _nucleus(candidates.logits, probs, p), lambda: len(candidates)):
        order = candidates.best(max(size(), min_keep))
        total = np.cumsum(probs[order], dtype=np.float64)
        if total[-1] >= p:
            break
    n = max(int(np.searchsorted(total, p)) + 1, min_keep, 1)
    candidates.keep(order[:n], is_sorted=True)


def _nucleus(logits: Float32Array, probs: Float32Array, p: float) -> int:
    """How many of the best have a total probability >= p: a few more, or by rounding too few."""
    bins = np.minimum((logits.max() - logits) * 4, _BINS - 1).astype(np.intp)
    total = np.cumsum(np.bincount(bins, weights=probs, minlength=_BINS))
    last = int(np.searchsorted(total, p))
    return int(np.bincount(bins, minlength=_BINS)[: last + 1].sum())


def min_p(candidates: Candidates, p: float, min_keep: int) -> None:
    """Keep candidates at least ``p`` times as probable as the best, at least max(1, min_keep); off for p <= 0."""
    if p <= 0.0:
        return
    logits = candidates.logits
    bound = np.float32(logits.max() + np.float32(np.log(p)))
    if candidates.is_sorted:
        candidates.cut(max(int(np.count_nonzero(logits >= bound)), min_keep, 1))
        return
    kept = np.flatnonzero(logits >= bound)
    if len(kept) >= max(min_keep, 1):
        candidates.keep(kept, is_sorted=False)
    else:
        candidates.keep(candidates.best(max(min_keep, 1)), is_sorted=True)


def typical(candidates: Candidates, p: float, min_keep: int) -> None:
    """Keep candidates whose surprise is nearest the entropy until their probability exceeds p; off for p >= 1.

    Locally typical sampling, Meister et al. 2022 (arXiv:2202.00666).
    """
    if p >= 1.0:
        return
    probs = softmax(candidates.logits).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = -np.log(probs)
        entropy = float(np.sum(probs * surprise, where=probs > 0))
        order = np.argsort(np.abs(surprise - entropy), kind="stable")
    total = np.cumsum(probs[order])
    n = max(int(np.searchsorted(total, p, side="right")) + 1, min_keep, 1)
    candidates.keep(order[:n], is_sorted=False)


def temperature(candidates: Candidates, t: float) -> None:
    """Divide logits by ``t``; for t <= 0 only the best (lowest id among equals) stays possible."""
    if t > 0.0:
        if t != 1.0:
            candidates.logits = candidates.logits / np.float32(t)
        return
    best = int(candidates.logits.argmax())
    greedy: Float32Array = np.full(len(candidates), -np.inf, np.float32)
    greedy[best] = candidates.logits[best]
    candidates.logits = greedy
    candidates.is_sorted = candidates.is_sorted and best == 0


def penalties(
    candidates: Candidates, counts: Mapping[int, int], repeat: float, frequency: float, presence: float
) -> None:
    """Make seen tokens less likely. ``counts``: how often each token in the window occurs."""
    at, times = _places(candidates, counts)
    if len(at) == 0:
        return
    logits = candidates.logits[at]
    factor = np.float32(repeat)
    logits = np.where(logits <= 0, logits * factor, logits / factor)
    logits = logits - (times * np.float32(frequency) + np.float32(presence))
    candidates.logits = candidates.logits.copy()
    candidates.logits[at] = logits
    candidates.is_sorted = False


def _places(candidates: Candidates, counts: Mapping[int, int]) -> tuple[npt.NDArray[np.intp], Float32Array]:
    """Which candidates were seen, and how often: intp[n], float32[n]."""
    tokens = np.fromiter(counts.keys(), np.intp, len(counts))
    times = np.fromiter(counts.values(), np.float32, len(counts))
    if candidates.ids is None or len(tokens) == 0:
        return tokens, times
    order = np.argsort(tokens)
    tokens, times = tokens[order], times[order]
    nearest = np.minimum(np.searchsorted(tokens, candidates.ids), len(tokens) - 1)
    at = np.flatnonzero(tokens[nearest] == candidates.ids)
    return at, times[nearest[at]]


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
