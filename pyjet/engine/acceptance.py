"""How often drafts are right, by what is known about them: learned while they are verified, never settled."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from pyjet.native.structs import MAX_DRAFT

# Cells: the positions of MTP drafts come first, then their confidences, then the matches of lookups.
# Borders of the MTP block's own probability of a draft; its first draft and later ones are counted apart, because
# later ones are made from its own guesses.
CONFIDENCES = (0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99)
# Borders of the number of tokens that a lookup matched, the drafts before included.
MATCHES = (3, 4, 6, 9, 13, 21, 33)

FIRST_CONFIDENCE = MAX_DRAFT
_N_CONFIDENCES = len(CONFIDENCES) + 1
_BORDERS = np.array(CONFIDENCES)
_FIRST_OF_POSITIONS = np.full(MAX_DRAFT, FIRST_CONFIDENCE + _N_CONFIDENCES)
_FIRST_OF_POSITIONS[0] = FIRST_CONFIDENCE
FIRST_MATCH = FIRST_CONFIDENCE + 2 * _N_CONFIDENCES
N_CELLS = FIRST_MATCH + len(MATCHES) + 1

# What is believed before anything was seen.
DROP = 0.96  # times as often as the draft before it, a draft is right when that is
_POSITIONS = tuple(0.7 * DROP**position for position in range(MAX_DRAFT))
_BY_CONFIDENCE = (0.1, 0.22, 0.4, 0.6, 0.77, 0.9, 0.96, 0.985)
_BY_MATCH = (0.15, 0.3, 0.4, 0.5, 0.65, 0.8, 0.88, 0.93)
BELIEFS = (*_POSITIONS, *_BY_CONFIDENCE, *_BY_CONFIDENCE, *_BY_MATCH)


def confidence_cells(probabilities: npt.NDArray[np.floating[Any]]) -> list[list[int]]:
    """Of MTP drafts by sequence and position in its step."""
    cells = _BORDERS.searchsorted(probabilities, "right")
    cells += _FIRST_OF_POSITIONS[: cells.shape[1]]
    found: list[list[int]] = cells.tolist()
    return found


class ConfidenceCells:
    """Those of one step, found when somebody asks: where all drafts are verified anyway, the next one computes then."""

    def __init__(self, probabilities: npt.NDArray[np.floating[Any]]) -> None:
        self._probabilities = probabilities.copy()
        self._cells: list[list[int]] | None = None

    def of(self, index: int) -> list[int]:
        """By position, of the sequence with this place in the step."""
        if self._cells is None:
            self._cells = confidence_cells(self._probabilities)
        return self._cells[index]


def match_cell(n_match: int, position: int) -> int:
    """Of a draft by lookup: those before it, when right, are part of the match."""
    return FIRST_MATCH + bisect_right(MATCHES, n_match + position)


# What an observation is worth after the next one of its kind, and how many of them the prior is worth.
KEEP, PRIOR = 0.98, 8.0  # for a sequence, whose prior is what all have seen
KEEP_OF_ALL, PRIOR_OF_ALL = 0.995, 4.0  # for all of them, whose prior is BELIEFS


class Counts:
    """Exponentially decaying counts of drafts by cell."""

    def __init__(self) -> None:
        self.n = [0.0] * N_CELLS
        self.n_right = [0.0] * N_CELLS


class Acceptance:
    """Probability that a draft of each kind (cell) of one sequence is right, given that all drafts before it are.

    A new sequence begins with what others have seen, and one that stops drafting is never far from trying again.
    """

    def __init__(self, of_all: Counts) -> None:
        self._own = Counts()
        self._of_all = of_all
        self.rates = [
            (n_right + PRIOR_OF_ALL * belief) / (n + PRIOR_OF_ALL)
            for n, n_right, belief in zip(of_all.n, of_all.n_right, BELIEFS)
        ]

    def rate_after(self, before: float, position: int) -> float:
        """Of an MTP draft at that position, when ``before`` is the rate of the one before it.

        A position at which little was drafted so far is expected to be nearly as good as the one before.
        """
        of_all, own, expected = self._of_all, self._own, before * DROP
        prior = (of_all.n_right[position] + PRIOR_OF_ALL * expected) / (of_all.n[position] + PRIOR_OF_ALL)
        return (own.n_right[position] + PRIOR * prior) / (own.n[position] + PRIOR)

    def add(self, cell: int, is_right: bool) -> None:
        """One more draft of a kind was found right or wrong."""
        of_all, own = self._of_all, self._own
        n = of_all.n[cell] = of_all.n[cell] * KEEP_OF_ALL + 1.0
        n_right = of_all.n_right[cell] = of_all.n_right[cell] * KEEP_OF_ALL + is_right
        prior = (n_right + PRIOR_OF_ALL * BELIEFS[cell]) / (n + PRIOR_OF_ALL)
        n = own.n[cell] = own.n[cell] * KEEP + 1.0
        n_right = own.n_right[cell] = own.n_right[cell] * KEEP + is_right
        self.rates[cell] = (n_right + PRIOR * prior) / (n + PRIOR)
