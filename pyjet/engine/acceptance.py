"""How often drafts are right, by what is known about them: learned while they are verified, never settled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from pyjet.native.structs import MAX_DRAFT

# Borders of the MTP block's own probability of a draft; its first draft and later ones are counted apart, because
# later ones are made from its own guesses.
CONFIDENCES = (0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99)
# Borders of the number of tokens that a lookup matched, the drafts before included.
MATCHES = (3, 4, 6, 9, 13, 21, 33)

FIRST_CONFIDENCE = MAX_DRAFT
_N_CONFIDENCES = len(CONFIDENCES) + 1
FIRST_MATCH = FIRST_CONFIDENCE + 2 * _N_CONFIDENCES
N_CELLS = FIRST_MATCH + len(MATCHES) + 1

# What is believed before anything was seen.
_POSITIONS = (0.7, 0.65, 0.62, 0.6, 0.58, 0.56, 0.55)
_BY_CONFIDENCE = (0.1, 0.22, 0.4, 0.6, 0.77, 0.9, 0.96, 0.985)
_BY_MATCH = (0.15, 0.3, 0.4, 0.5, 0.65, 0.8, 0.88, 0.93)
BELIEFS = (*_POSITIONS, *_BY_CONFIDENCE, *_BY_CONFIDENCE, *_BY_MATCH)


def confidence_cell(probability: float, position: int) -> int:
    """Of an MTP draft, whose position among the drafts of its step counts from 0."""
    return FIRST_CONFIDENCE + (position > 0) * _N_CONFIDENCES + bisect_right(CONFIDENCES, probability)


def match_cell(n_match: int, position: int) -> int:
    """Of a draft by lookup: those before it, when right, are part of the match."""
    return FIRST_MATCH + bisect_right(MATCHES, n_match + position)


class Memory(NamedTuple):
    """``keep``: what an observation is worth after the next one of its kind; ``belief``: what the prior is worth."""

    keep: float
    belief: float


OF_ALL = Memory(keep=0.995, belief=10.0)
OF_SEQUENCE = Memory(keep=0.96, belief=5.0)


class Acceptance:
    """Probability that a draft of each kind (cell) is right, given that all drafts before it are.

    Exponentially decaying counts over those of ``prior``, which all sequences share, so that a new sequence begins
    with what others have seen, and one that stops drafting is never far from trying again.
    """

    def __init__(self, prior: Acceptance | None = None) -> None:
        self._prior = prior
        self._memory = OF_SEQUENCE if prior is not None else OF_ALL
        self._n = [0.0] * N_CELLS
        self._n_right = [0.0] * N_CELLS
        self.rates: list[float] = list(prior.rates if prior is not None else BELIEFS)

    def add(self, cell: int, right: bool) -> None:
        """One more draft of a kind was found right or wrong."""
        memory, prior = self._memory, self._prior
        if prior is not None:
            prior.add(cell, right)
        n = self._n[cell] = self._n[cell] * memory.keep + 1.0
        n_right = self._n_right[cell] = self._n_right[cell] * memory.keep + right
        belief = BELIEFS[cell] if prior is None else prior.rates[cell]
        self.rates[cell] = (n_right + memory.belief * belief) / (n + memory.belief)

    def chance(self, cells: Iterable[int]) -> list[float]:
        """Probability that the first so many drafts are all right, for drafts of these kinds in a row."""
        chances, product = [], 1.0
        for cell in cells:
            product *= self.rates[cell]
            chances.append(product)
        return chances
