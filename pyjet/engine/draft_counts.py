"""How many drafts were verified and how many were right, for people and /metrics."""

from __future__ import annotations

from collections import Counter

from pyjet.engine.guesses import Source


class DraftCounts:
    """Totals since the engine's start."""

    def __init__(self) -> None:
        self.n_drafts = 0  # steps of a sequence that verified any
        self.drafted: Counter[Source] = Counter()
        self.right: Counter[Source] = Counter()
        self._right_at: list[int] = []  # by position in the draft

    def add(self, source: Source, n_drafted: int, n_right: int) -> None:
        self.n_drafts += 1
        self.drafted[source] += n_drafted
        self.right[source] += n_right
        self._right_at += [0] * (n_drafted - len(self._right_at))
        for position in range(n_right):
            self._right_at[position] += 1

    @property
    def right_at(self) -> tuple[int, ...]:
        """How many were right, by their position, up to the last position that ever had any."""
        return tuple(self._right_at)
