"""Acceptance by lot, for benchmarks of speed: the model's own opinion of a draft is not asked."""

from __future__ import annotations

from pyjet.engine.noise import bits_of, noise_state
from pyjet.native.structs import MAX_DRAFT

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
        self._seed = seed ^ SALT

    def n_right(self, index: int, n_drafts: int) -> int:
        """How many of so many drafts are right; the first one stands for token ``index`` of the answer."""
        state = noise_state(self._seed, index)
        for position, rate in enumerate(self._conditional[:n_drafts]):
            if bits_of(state, position) >> 11 >= rate * 2.0**53:
                return position
        return n_drafts
