"""Acceptance by lot, for benchmarks of speed: the model's own opinion of a draft is not asked."""

from __future__ import annotations

import numpy as np

from pyjet.engine.noise import first_bits
from pyjet.native.structs import MAX_DRAFT

AT_ONCE = 256  # lots of so many tokens are drawn together
SALT = 0x5EED  # lots have nothing to do with the noise by which tokens are drawn


class Lots:
    """Draft i is right with probability ``rates[i]``, if all before it are with ``rates[i] / rates[i - 1]``.

    The lot depends on the seed and on which token of the answer the first draft stands for, so that a request's
    answer is the same each time.
    """

    def __init__(self, rates: tuple[float, ...], seed: int) -> None:
        self._conditional = [0.0] * max(len(rates), MAX_DRAFT)  # where there is no rate, none is right
        for i, (rate, before) in enumerate(zip(rates, (1.0, *rates))):
            self._conditional[i] = rate / before if before > 0.0 else 0.0
        self._seed = (seed ^ SALT) & 0xFFFFFFFFFFFFFFFF
        self._n_right: list[int] = []  # of the longest draft, by token of the answer

    def n_right(self, index: int, n_drafts: int) -> int:
        """How many of so many drafts are right; the first one stands for token ``index`` of the answer."""
        while index >= len(self._n_right):
            self._draw()
        n_right = self._n_right[index]
        return n_right if n_right < n_drafts else n_drafts

    def _draw(self) -> None:
        """The lots of the next tokens."""
        bits = first_bits(self._seed, len(self._n_right), AT_ONCE, len(self._conditional))
        is_right = (bits >> np.uint64(11)) < np.array(self._conditional) * 2.0**53
        self._n_right += np.logical_and.accumulate(is_right, axis=1).sum(axis=1).tolist()
