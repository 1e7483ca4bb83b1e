"""Acceptance by lot, for benchmarks of speed: the model's own opinion of a draft is not asked."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class Lots:
    """Draft i is right with probability ``rates[i]``, if all before it are with ``rates[i] / rates[i - 1]``.

    The lot depends on the seed and on which token of the answer the first draft stands for, so that a request's
    answer is the same each time.
    """

    def __init__(self, rates: tuple[float, ...], seed: int) -> None:
        before = (1.0, *rates)
        self._conditional = [rate / prior if prior > 0.0 else 0.0 for rate, prior in zip(rates, before)]
        self._seed = seed

    def n_right(self, index: int, n_drafts: int) -> int:
        """How many of so many drafts are right; the first one stands for token ``index`` of the answer."""
        for i, probability in enumerate(self._conditional[:n_drafts]):
            if uniform(self._seed, index, i) >= probability:
                return i
        return min(n_drafts, len(self._conditional))


def uniform(seed: int, index: int, position: int) -> float:
    """A number in 0..1 for each triple: SplitMix64's finalizer (Steele, Lea, Flood 2014), once for each part."""
    value = seed
    for part in (index, position):
        value = (value + (part + 1) * 0x9E3779B97F4A7C15) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return (value >> 11) * 2.0**-53
