"""Exclude top choices: now and then all likely candidates but the least likely one of them are dropped.

The idea is p-e-w's (text-generation-webui, pull request 6335, 2024).
"""

from __future__ import annotations

import numpy as np

from pyjet.engine.candidates import Candidates, softmax
from pyjet.engine.noise import XTC_STREAM, uniform


def xtc(candidates: Candidates, probability: float, threshold: float, min_keep: int, seed: int, index: int) -> None:
    """Of candidates with a probability >= ``threshold`` keep only the last one, with a chance of ``probability``.

    The chance is decided by ``seed`` and ``index`` of the token. Nothing is dropped when fewer than ``min_keep``
    would be left; off for probability <= 0 and for threshold > 0.5, where there can be no two such candidates.
    """
    if probability <= 0.0 or threshold > 0.5 or len(candidates) < 2:
        return
    if uniform(seed, index, XTC_STREAM) > probability:
        return
    probs = softmax(candidates.logits)
    n_dropped = int(np.count_nonzero((probs >= np.float32(threshold)) & (probs > 0))) - 1
    if n_dropped < 1 or len(candidates) - n_dropped < min_keep:
        return
    is_kept = np.ones(len(candidates), bool)
    is_kept[candidates.best(n_dropped)] = False
    candidates.keep(np.flatnonzero(is_kept), is_sorted=candidates.is_sorted)
