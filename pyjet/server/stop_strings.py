"""Finding stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """The stop strings of a request, applied to text that has not been sent yet.

    The caller keeps unsent text until :meth:`may_begin` is false, so a match is always wholly inside of it,
    also when it began several tokens ago.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [word for word in words if word]

    def find(self, text: str) -> tuple[int, str] | None:
        """Position and word of the earliest match; of several at one position the first in the list."""
        best: tuple[int, str] | None = None
        for word in self._words:
            position = text.find(word)
            if position >= 0 and (best is None or position < best[0]):
                best = (position, word)
        return best

    def may_begin(self, text: str) -> bool:
        """Whether ``text`` ends with the beginning of a stop string."""
        return any(self._ends_with_beginning(text, word) for word in self._words)

    @staticmethod
    def _ends_with_beginning(text: str, word: str) -> bool:
        longest = min(len(word) - 1, len(text))
        return any(text.endswith(word[:length]) for length in range(longest, 0, -1))
