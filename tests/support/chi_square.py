"""Pearson's chi-square test: do counts look drawn from a distribution?"""

from __future__ import annotations

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
