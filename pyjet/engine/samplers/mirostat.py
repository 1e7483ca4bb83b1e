"""Mirostat: candidates are cut so that the surprise of chosen tokens stays near a target.

Basu, Ramachandran, Keskar, Varshney, "Mirostat: a neural text decoding algorithm that directly controls perplexity",
2021 (arXiv:2007.14966): version 1 estimates the exponent of Zipf's law, version 2 cuts by surprise alone.
"""

from __future__ import annotations

import math

import numpy as np

from pyjet.engine.candidates import Candidates, Float32Array, softmax
from pyjet.engine.samplers.truncation import top_k

_N_ESTIMATE = 100  # candidates from which version 1 estimates


class Mirostat:
    """Its state is ``mu``, in bits: the largest surprise that is let through, twice the target at first."""

    def __init__(self, version: int, tau: float, eta: float, n_vocab: int) -> None:
        self._is_first = version == 1
        self._tau, self._eta, self._n_vocab = tau, eta, n_vocab
        self.mu = 2.0 * tau
        self._pending: tuple[int, float] | None = None  # token that was drawn, ``mu`` once it is accepted

    @property
    def memory(self) -> tuple[float, ...]:
        """The state after the accepted tokens, for ``resume``."""
        return (self.mu,)

    def resume(self, memory: tuple[float, ...]) -> None:
        """Go on where another one was."""
        (self.mu,) = memory

    def apply(self, candidates: Candidates) -> None:
        """Drop candidates that would surprise too much; the best one stays."""
        if self._is_first:
            best = candidates.logits[candidates.best(_N_ESTIMATE)]
            top_k(candidates, zipf_rank(best, self.mu, self._n_vocab, len(candidates)))
            return
        probs = softmax(candidates.logits)
        with np.errstate(over="ignore"):
            bound = np.exp2(-np.float64(self.mu))
        kept = np.flatnonzero((probs >= bound) & (probs > 0))
        if len(kept):
            candidates.keep(kept, is_sorted=candidates.is_sorted)
        else:
            top_k(candidates, 1)

    def note(self, token: int, probability: float) -> None:
        """This one was drawn, with this probability among what was left; nothing changes before it is accepted."""
        error = -math.log2(probability) - self._tau
        self._pending = (token, self.mu - self._eta * error)

    def accept(self, token: int) -> None:
        """A token became part of the answer."""
        if self._pending is not None and self._pending[0] == token:
            self.mu = self._pending[1]
        self._pending = None


def zipf_rank(best: Float32Array, mu: float, n_vocab: int, n: int) -> int:
    """How many of ``n`` candidates have a surprise of at most ``mu`` bits under Zipf's law, at least 1.

    ``best``: the largest logits, best first. The exponent s is the least-squares one for their ratios, and the rank
    is ((s - 1) 2^mu / (1 - n_vocab^(1 - s)))^(1 / s): algorithm 1 of the paper.
    """
    best = best[best != -np.inf].astype(np.float64)
    ranks = np.arange(1, len(best))
    steps = np.log((ranks + 1) / ranks)
    with np.errstate(all="ignore"):
        s = np.float64(np.dot(steps, best[:-1] - best[1:])) / np.dot(steps, steps)
        rank = np.power((s - 1) * np.exp2(mu) / (1 - np.power(float(n_vocab), 1 - s)), 1 / s)
    return 1 if math.isnan(rank) else max(1, int(min(rank, n)))
