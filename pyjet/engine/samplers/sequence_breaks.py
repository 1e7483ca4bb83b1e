"""Where a text of tokens was last interrupted by a sequence breaker."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.engine.request import Breakers

_NEVER = 1 << 40


class SequenceBreaks:
    """Knows the breaker that begins nearest to the end; of several that begin there, the longest."""

    def __init__(self, breakers: Breakers) -> None:
        self.tokens = breakers.tokens
        self._tails: dict[int, list[tuple[int, ...]]] = {}
        for head, *tail in breakers.sequences:
            self._tails.setdefault(head, []).append(tuple(tail))
        self._heads = breakers.tokens | self._tails.keys()
        self._longest_tail = max((len(tail) for tails in self._tails.values() for tail in tails), default=0)
        self._distance = _NEVER  # from the last token to the breaker's first one
        self._length = 0  # of the breaker, without its first token

    def n_behind(self, n: int) -> int:
        """How many of the last ``n`` tokens are behind the last breaker that begins in them."""
        return self._distance - self._length if self._distance < n else n

    def add(self, text: npt.NDArray[np.int32], n_new: int) -> None:
        """``text`` int32[n] is what there is now; its last ``n_new`` tokens are new."""
        n = min(len(text), n_new + self._longest_tail)
        recent = text[len(text) - n :].tolist()
        for distance, token in enumerate(reversed(recent)):
            if token in self._heads and (length := self._match(recent, distance)) >= 0:
                self._distance, self._length = distance, length
                return
        self._distance = min(self._distance + n_new, _NEVER)

    def _match(self, text: list[int], distance: int) -> int:
        """Length, without its first token, of the longest breaker there; -1: none begins there."""
        begin = len(text) - 1 - distance
        longest = 0 if text[begin] in self.tokens else -1
        for tail in self._tails.get(text[begin], ()):
            end = begin + 1 + len(tail)
            if len(tail) > longest and end <= len(text) and tuple(text[begin + 1 : end]) == tail:
                longest = len(tail)
        return longest
