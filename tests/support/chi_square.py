"""Pearson's chi-square test: do counts look drawn from a distribution?"""

from __future__ import annotations

import math

import numpy as np

_Z = 2.3263  # the normal distribution's 99% quantile


def statistic(counts: np.ndarray, probs: np.ndarray) -> float:
    """Of int[...] counts drawn with the probabilities of the same shape, all above 0."""
    expected = probs / probs.sum() * counts.sum()
    assert expected.min() > 5, "too few draws"
    return float(((counts - expected) ** 2 / expected).sum())


def limit(degrees: int) -> float:
    """The statistic is above this in one of a hundred tests: 99% quantile after Wilson and Hilferty (1931)."""
    return float(degrees * (1 - 2 / (9 * degrees) + _Z * np.sqrt(2 / (9 * degrees))) ** 3)


def fits(counts: np.ndarray, probs: np.ndarray) -> bool:
    """Whether p > 0.01."""
    return statistic(counts, probs) < limit(counts.size - 1)


def p_value_of_two(a: np.ndarray, b: np.ndarray) -> float:
    """How often counts int[cells] that come from one distribution differ as much as ``a`` and ``b``, or more.

    Cells in which fewer than 5 are expected, in either sample, are pooled.
    """
    order = np.argsort(a + b)[::-1]
    counts = np.array([a, b], np.float64)[:, order]
    totals = counts.sum(axis=1, keepdims=True)
    expected = counts.sum(axis=0) * totals / totals.sum()
    n_kept = int(np.count_nonzero(expected.min(axis=0) >= 5))
    if expected[:, n_kept:].sum(axis=1).min() < 5:
        n_kept -= 1  # the rest is too small for a cell of its own
    assert n_kept > 0, "too few draws"
    counts, expected = (
        np.hstack([each[:, :n_kept], each[:, n_kept:].sum(axis=1, keepdims=True)]) for each in (counts, expected)
    )
    return p_value(float(((counts - expected) ** 2 / expected).sum()), n_kept)


def p_value(statistic: float, degrees: int) -> float:
    """How often the statistic is larger by chance, after Wilson and Hilferty (1931)."""
    spread = 2 / (9 * degrees)
    z = ((statistic / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return 0.5 * math.erfc(z / math.sqrt(2))
