"""The infill sampler: is there a text that belongs here, or is it the end?

By ggerganov (llama.cpp, pull request 9896, 2024), for completions in an editor, behind top_k and top_p: rather nothing
than a guess. Tokens that are beginnings of others count together with them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.engine.candidates import Candidates, Float32Array, softmax
from pyjet.engine.request import InfillTokens

_MOST = 1024  # candidates that are compared with each other: the likeliest ones, llama.cpp compares all
_LIKELY = np.float32(0.2)  # less probable texts are dropped


def infill(candidates: Candidates, tokens: InfillTokens) -> None:
    """Keep the ends where they are likely for so many candidates; otherwise the ends and the likely texts."""
    candidates.keep(candidates.best(len(candidates)), is_sorted=True)
    n, probs = len(candidates), softmax(candidates.logits)
    is_end = tokens.is_end[_ids(candidates)]
    of_ends = float(probs[is_end].sum())
    if 3 * of_ends * n > float(probs[~is_end].sum()):
        candidates.keep(np.flatnonzero(is_end), is_sorted=True)
        return
    probs = _combined(probs, _ids(candidates)[:_MOST], tokens)
    is_kept = (probs >= _LIKELY) | is_end
    n_texts = int(np.count_nonzero(is_kept & ~is_end))
    if n_texts == 0:
        _keep_only_end(candidates, tokens)
        return
    share = probs / probs[is_kept].sum()
    candidates.keep(np.flatnonzero(is_kept & (is_end | (share >= 1 / (n_texts + 1)))), is_sorted=True)


def _ids(candidates: Candidates) -> npt.NDArray[np.intp]:
    return np.arange(len(candidates)) if candidates.ids is None else candidates.ids.astype(np.intp)


def _keep_only_end(candidates: Candidates, tokens: InfillTokens) -> None:
    """The end token takes the place of all candidates, one of which it need not be."""
    candidates.ids = np.array([tokens.end], np.intp)
    candidates.logits = np.ones(1, np.float32)
    candidates.is_sorted = True


def _combined(probs: Float32Array, ids: npt.NDArray[np.intp], tokens: InfillTokens) -> Float32Array:
    """float32[n]: where one text begins with another, the less probable one's probability goes to the other one.

    ``probs`` are best first, ``ids`` those of the first ones.
    """
    probs = probs.copy()
    ranks, lasts = tokens.rank[ids], tokens.last[ids]
    is_left = np.ones(len(ids), bool)
    for i in range(len(ids)):
        if not is_left[i] or lasts[i] < 0:
            continue
        longer = np.flatnonzero((ranks >= ranks[i]) & (ranks <= lasts[i]) & is_left)
        for other in longer.tolist():
            if other == i:
                continue
            to, source = (other, i) if probs[other] > probs[i] else (i, other)
            probs[to] += probs[source]
            probs[source] = 0.0
            is_left[source] = False
            if source == i:
                break
    return probs
