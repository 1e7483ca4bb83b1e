"""Where the end of a growing text of tokens occurs before, and how much of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]


class SuffixMatches:
    """A window of the last ``last_n`` tokens. A token costs one pass over it."""

    def __init__(self, last_n: int) -> None:
        self._last_n = last_n
        self._tokens = np.zeros(0, np.int32)
        self._lengths = np.zeros(0, np.int32)  # not limited to the window
        self._begin = self._end = 0  # of the window in both arrays

    @property
    def tokens(self) -> Int32Array:
        """int32[n]: the window, oldest token first."""
        return self._tokens[self._begin : self._end]

    @property
    def lengths(self) -> Int32Array:
        """int32[n]: how many tokens up to each one, in the window, are those at the end. The last one's is 0."""
        n = self._end - self._begin
        return np.minimum(self._lengths[self._begin : self._end], np.arange(1, n + 1, dtype=np.int32))

    def add(self, tokens: list[int]) -> None:
        """These come next."""
        if self._end == 0 and len(tokens) > 1:
            self._start(tokens[-self._last_n :])
            return
        for token in tokens:
            self._add(token)

    def _start(self, tokens: list[int]) -> None:
        n = len(tokens)
        self._make_room(n)
        self._tokens[:n] = tokens
        self._lengths[:n] = suffix_matches(tokens)
        self._end = n

    def _add(self, token: int) -> None:
        if self._end == len(self._tokens):
            self._make_room(1)
        begin, end = self._begin, self._end
        if end > begin:
            lengths = self._lengths[begin:end]
            lengths[1:] = lengths[:-1] + 1
            lengths[0] = 1
            lengths *= self._tokens[begin:end] == token
        self._tokens[end], self._lengths[end] = token, 0
        self._end = end + 1
        self._begin = max(begin, self._end - self._last_n)

    def _make_room(self, n: int) -> None:
        """For ``n`` more tokens, and as many as there are: seldom."""
        n_kept = self._end - self._begin
        arrays = []
        for array in (self._tokens, self._lengths):
            larger = np.zeros(2 * (n_kept + n) + 64, np.int32)
            larger[:n_kept] = array[self._begin : self._end]
            arrays.append(larger)
        self._tokens, self._lengths = arrays
        self._begin, self._end = 0, n_kept


def suffix_matches(tokens: list[int]) -> Int32Array:
    """int32[n]: ``SuffixMatches.lengths`` of a whole text, in linear time."""
    text = np.array(tokens, np.int32)
    n = len(text)
    lengths = np.zeros(n, np.int32)
    at = np.flatnonzero(text[:-1] == text[-1:])
    length, budget = 0, 8 * n
    while len(at):
        length += 1
        lengths[at] = length
        at = at[at >= length]
        at = at[text[at - length] == text[n - 1 - length]]
        budget -= len(at) + 64
        if budget < 0:  # much of the text is repeated
            return np.array(z_lengths(tokens[::-1])[::-1], np.int32)
    return lengths


def z_lengths(text: list[int]) -> list[int]:
    """How much of the beginning of ``text`` stands at each place, 0 at the first: the Z-algorithm (Gusfield 1997)."""
    n = len(text)
    z = [0] * n
    left = right = 0  # the match that reaches farthest: text[left:right] == text[: right - left]
    for i in range(1, n):
        length = min(right - i, z[i - left]) if i < right else 0
        while i + length < n and text[length] == text[i + length]:
            length += 1
        z[i] = length
        if i + length > right:
            left, right = i, i + length
    return z
