"""Masks of the rows of a step: which tokens the grammars of their answers allow, and which drafts are in vain."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items

import numpy as np

from pyjet.engine.constraint import Constraint, Constraints
from pyjet.engine.sequence import Sequence
from pyjet.native.samples import Masks, mask_words


class MaskRows:
    """``masks``: uint32[rows, words], of one step at a time. A sequence's ``mask_row`` is its first one, -1: none."""

    def __init__(self, n_vocab: int, max_rows: int, constraints: Constraints | None) -> None:
        self.masks: Masks = np.zeros((max_rows, mask_words(n_vocab)), np.uint32)
        self._constraints = constraints
        self._n = 0  # rows of this step so far

    def of_decoding(self, sequences: Iterable[Sequence]) -> None:
        """Begin a step. Of drafts those stay that the grammar allows, so that each row has its mask."""
        self._n = 0
        constrained = [(s, s.constraint) for s in sequences if s.constraint is not None]
        for sequence, constraint in constrained:
            del sequence.verifying[constraint.n_verifiable(sequence.verifying) :]
        active = self._fill(constrained)
        for sequence in active:
            del sequence.verifying[self._n_allowed(sequence.mask_row, sequence.verifying) :]

    def of_ending(self, sequences: Iterable[Sequence]) -> None:
        """Those that come to the end of what they read, and so to a token."""
        self._fill([(s, s.constraint) for s in sequences if s.constraint is not None])

    def row(self, sequence: Sequence, i: int) -> Masks | None:
        """uint32[words] for the i-th token of a sequence's step; None: every token may come."""
        return None if sequence.mask_row < 0 else self.masks[sequence.mask_row + i]

    def _fill(self, constrained: Items[tuple[Sequence, Constraint]]) -> list[Sequence]:
        """Returns those that have masks."""
        parts = []
        active = []
        for sequence, constraint in constrained:
            if not constraint.is_active:
                sequence.mask_row = -1
                continue
            sequence.mask_row = self._n
            self._n += sequence.n_rows
            parts.append((constraint, sequence.mask_row, sequence.verifying))
            active.append(sequence)
        if parts:
            assert self._constraints is not None
            self._constraints.fill(parts, self.masks)
        return active

    def _n_allowed(self, row: int, drafts: Items[int]) -> int:
        for i, draft in enumerate(drafts):
            if not int(self.masks[row + i, draft >> 5]) >> (draft & 31) & 1:
                return i
        return len(drafts)
