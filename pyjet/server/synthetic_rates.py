"""Synthetic acceptance for benchmarks: the rates that the command line gives, checked by llama-server's rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_BISECTIONS = 60


def check_rates(rates: Sequence[float], n_max: int) -> None:
    """``rates``: probability for each position that it and all before it are accepted. Raises ValueError."""
    if n_max < 1:
        raise ValueError("synthetic acceptance needs drafts of at least one token; raise --spec-draft-n-max")
    if len(rates) != n_max:
        raise ValueError(f"{n_max} rates are needed, one for each token of the longest draft, not {len(rates)}")
    if not all(math.isfinite(rate) and 0 <= rate <= 1 for rate in rates):
        raise ValueError("rates lie between 0 and 1")
    if any(later > earlier for earlier, later in pairwise(rates)):
        raise ValueError("rates never increase: a token counts only when all before it were accepted")


def rates_for_length(length: float, n_max: int, limit: int) -> tuple[float, ...]:
    """Rates p, p^2, ... of a mean of ``length`` tokens a step, the one that is always there included.

    ``n_max``: tokens of the longest draft by the options, ``limit``: of those that are verified, so many rates come
    back. Raises ValueError for a length outside 1 .. n_max + 1; above ``limit`` + 1 every draft is accepted.
    """
    if n_max < 1:
        raise ValueError("synthetic acceptance needs drafts of at least one token; raise --spec-draft-n-max")
    if not (math.isfinite(length) and 1 <= length <= n_max + 1):
        raise ValueError(f"the mean length lies between 1 and {n_max + 1} with drafts of up to {n_max} tokens")
    p = _geometric_ratio(length - 1, min(n_max, limit))
    return tuple(p**position for position in range(1, min(n_max, limit) + 1))


def _geometric_ratio(total: float, n: int) -> float:
    """The p with p + p^2 + ... + p^n = total; 1 when that is too small."""
    if total >= n:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if sum(middle**position for position in range(1, n + 1)) < total:
            low = middle
        else:
            high = middle
    return low
