"""How long answers are likely to get."""

from __future__ import annotations

WEIGHT = 1 / 8  # of the newest answer in the running mean
FIRST_GUESS = 128


class OutputLength:
    """A running mean of the lengths of answers, in tokens."""

    def __init__(self) -> None:
        self._mean = float(FIRST_GUESS)

    @property
    def expected(self) -> int:
        return round(self._mean)

    def add(self, n_tokens: int) -> None:
        """An answer ended."""
        self._mean += (n_tokens - self._mean) * WEIGHT
