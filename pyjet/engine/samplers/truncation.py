"""Samplers that drop unlikely candidates: top_k, top_p, min_p, typ_p and top_n_sigma."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.engine.candidates import Candidates, Float32Array, softmax, surprises

_FEW = 256  # how many of the best top_p looks at first: nearly always enough
_BINS = 256  # of a quarter each, by how far a logit is below the best
_NEAR_BINS, _PER_NAT = 4096, 64  # the same for typical, by distance


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
    probs, surprise, entropy = surprises(candidates.logits)
    distance: Float32Array = np.abs(surprise - np.float32(entropy))  # infinite for impossible candidates
    order = _nearest(distance, probs, p) if len(candidates) > _FEW else np.argsort(distance, kind="stable")
    total = np.cumsum(probs[order], dtype=np.float64)
    n = max(int(np.searchsorted(total, p, side="right")) + 1, min_keep, 1)
    if n > len(order) < len(candidates):
        order = np.argsort(distance, kind="stable")
    candidates.keep(order[:n], is_sorted=False)


def _nearest(distance: Float32Array, probs: Float32Array, p: float) -> npt.NDArray[np.intp]:
    """The nearest whose total probability exceeds p, and a few more or by rounding too few.

    Only those about as far away as the last of them are in order.
    """
    bins = np.minimum(distance * _PER_NAT, _NEAR_BINS - 1).astype(np.intp)
    total = np.cumsum(np.bincount(bins, weights=probs, minlength=_NEAR_BINS))
    border = int(np.searchsorted(total, p, side="right"))
    last = np.flatnonzero(bins == border)
    return np.concatenate([np.flatnonzero(bins < border), last[np.argsort(distance[last], kind="stable")]])


def top_n_sigma(candidates: Candidates, n: float) -> None:
    """Candidates more than ``n`` standard deviations below the best logit become impossible; off for n <= 0.

    They stay candidates, as at llama.cpp, and impossible ones do not count for the deviation. Tang et al. 2024
    (arXiv:2411.07641).
    """
    if n <= 0.0 or len(candidates) <= 1:
        return
    logits = candidates.logits
    possible = logits[logits != -np.inf]
    apart = possible - np.float32(possible.mean(dtype=np.float64))
    bound = possible.max() - np.float32(n * np.sqrt(np.dot(apart, apart) / len(apart)))
    candidates.logits = np.where(logits < bound, np.float32(-np.inf), logits)
