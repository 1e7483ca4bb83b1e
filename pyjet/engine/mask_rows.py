"""Masks of the rows of a step: which tokens the grammars of their answers allow, and which drafts are in vain."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pyjet.engine.constraint import Constraint, Constraints
from pyjet.engine.sequence import Sequence
from pyjet.native.samples import Masks, mask_words


class MaskRows:
    """``masks``: uint32[rows, words], of one step at a time. A sequence's ``mask_row`` is its first one, -1: none.

    Rows are dealt before the step; ``fill`` comes while it computes, because nothing needs masks before tokens are
    chosen.
    """

    def __init__(self, n_vocab: int, max_rows: int, constraints: Constraints | None) -> None:
        self.masks: Masks = np.zeros((max_rows, mask_words(n_vocab)), np.uint32)
        self._constraints = constraints
        self._n = 0  # rows of this step so far
        self._parts: list[tuple[Constraint, int, list[int]]] = []  # to fill: constraint, its first row, drafts

    def of_decoding(self, sequences: Iterable[Sequence]) -> None:
        """Begin a step. Of drafts those stay that the grammar allows, so that each row has its mask."""
        self._n = 0
        self._parts = []
        for sequence in sequences:
            if (constraint := sequence.constraint) is None:
                continue
            if sequence.verifying:
                del sequence.verifying[constraint.n_verifiable(sequence.verifying) :]
            self._add(sequence, constraint)

    def of_ending(self, sequences: Iterable[Sequence]) -> None:
        """Those that come to the end of what they read, and so to a token."""
        for sequence in sequences:
            if sequence.constraint is not None:
                self._add(sequence, sequence.constraint)

    def fill(self) -> None:
        """The masks of this step."""
        parts, self._parts = self._parts, []
        if parts:
            assert self._constraints is not None
            self._constraints.fill(parts, self.masks)

    def row(self, sequence: Sequence, i: int) -> Masks | None:
        """uint32[words] for the i-th token of a sequence's step; None: every token may come."""
        return None if sequence.mask_row < 0 else self.masks[sequence.mask_row + i]

    def _add(self, sequence: Sequence, constraint: Constraint) -> None:
        if not constraint.is_active:
            sequence.mask_row = -1
            return
        sequence.mask_row = self._n
        self._n += sequence.n_rows
        self._parts.append((constraint, sequence.mask_row, sequence.verifying))
