"""Drafts by prompt lookup: what followed the newest tokens of a sequence where they occurred before.

Agents repeat: files that they edit, results that they quote, names. (Saxena, "Prompt lookup decoding", 2023.)
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyjet.engine.prefix_tree import Tokens

UInt64Array = npt.NDArray[np.uint64]
N_LEVELS = 3  # n-grams of the shortest size, and each next one twice as long
LONGEST = 32  # tokens of an n-gram at most, unless already the shortest size is larger
MOST_COMPARED = 32  # tokens: longer matches count as so long
SLICE = 8192  # tokens that are indexed in a step at most: the beginning of a long prompt takes several
FEW = 24  # tokens up to which they are indexed one by one, which is faster for few

MASK = (1 << 64) - 1
BASE = 0x9E3779B97F4A7C15  # of the polynomial over tokens whose value modulo 2^64 is an n-gram's hash
SCRAMBLE = 0xD1342543DE82EF95  # odd: spreads a hash over the upper bits, which are the place in the table
_N_LARGEST = 22  # bits of a table at most


class Found(NamedTuple):
    """``tokens`` followed the last occurrence of the newest ``n_match`` tokens."""

    tokens: list[int]
    n_match: int


class Level:
    """Where each n-gram of one size ended last: a table without collision lists, checked against the tokens."""

    def __init__(self, size: int, n_bits: int) -> None:
        self.size = size
        self.shift = 64 - n_bits
        self.power = pow(BASE, size, 1 << 64)
        self.table = np.zeros(1 << n_bits, np.int32)  # position + 1; 0: never seen
        self.ends = self.table.data  # the same, faster for single entries
        self.recent: deque[int] = deque(maxlen=size)  # hashes of as many of the newest n-grams as one has tokens
        self.newest = 0  # place of the newest one

    def places(self, values: UInt64Array) -> UInt64Array:
        scrambled: UInt64Array = (values * np.uint64(SCRAMBLE)) >> np.uint64(self.shift)
        return scrambled

    def add_all(self, values: UInt64Array, first_end: int) -> None:
        """The n-grams that end at ``first_end`` and behind it. The last one of equals stays."""
        ends = np.arange(first_end + 1, first_end + 1 + len(values), dtype=np.int32)
        self.table[self.places(values)] = ends


class LookupIndex:
    """All n-grams of ``tokens``, an array that its owner fills from the front.

    Memory: a few bytes for each token that there may be. A token costs the same however many there are.
    """

    def __init__(self, tokens: Tokens, min_match: int, size: int, min_hits: int = 1) -> None:
        self._tokens = tokens
        self._size = size
        self._min_hits = min_hits
        n_bits = min(max(10, int(2 * len(tokens)).bit_length()), _N_LARGEST)
        sizes = [n for n in (min_match << level for level in range(N_LEVELS)) if n <= max(LONGEST, min_match)]
        self._levels = [Level(n, n_bits) for n in sizes]
        # How often n-grams of the shortest size occurred, by place.
        self._hits = np.zeros(1 << n_bits, np.int32) if min_hits > 1 else None
        self._n = 0  # tokens of which all n-grams but the one at the very end are indexed
        self._restart(0)

    def extend(self, n: int) -> None:
        """The first ``n`` tokens are known now; more of them are indexed, SLICE at most."""
        end = min(n, self._n + SLICE)
        if end - self._n > FEW:
            self._extend_at_once(end)
        else:
            for position in range(self._n, end):
                self._add(position)
        self._n = max(self._n, end)

    def _add(self, position: int) -> None:
        """The token there; the n-grams before it have something behind them now, so they can be found."""
        first = self._levels[0]
        value = int(self._tokens[position]) + first.recent[-1] * BASE
        if position >= first.size:
            value -= int(self._tokens[position - first.size]) * first.power
            if self._hits is not None:
                self._hits[first.newest] += 1
        for level in self._levels:
            value &= MASK
            recent = level.recent
            if position >= level.size:
                level.ends[level.newest] = position
            level.newest = (value * SCRAMBLE & MASK) >> level.shift
            half = recent[0]
            recent.append(value)
            # An n-gram of the next size is two of this one: the one that ends here and the one that ended before it.
            value += half * level.power

    def _restart(self, n: int) -> None:
        """Hashes of the n-grams that end before position ``n``, from the tokens there."""
        longest = self._levels[-1].size
        begin = max(0, n - 2 * longest)
        for level, values in zip(self._levels, self._hashes(begin, n)):
            level.recent.extend([0] * level.size)
            level.recent.extend(values[-level.size :].tolist())
            level.newest = (level.recent[-1] * SCRAMBLE & MASK) >> level.shift

    def _hashes(self, begin: int, end: int) -> list[UInt64Array]:
        """Of each size uint64[end - begin]: hashes of the n-grams that end there, 0 for tokens before ``begin``."""
        tokens = self._tokens[begin:end].astype(np.uint64)
        first = self._levels[0]
        values = np.zeros(end - begin, np.uint64)
        power = 1
        for back in range(min(first.size, end - begin)):
            values[back:] += tokens[: len(tokens) - back] * np.uint64(power)
            power = (power * BASE) & MASK
        hashes = [values]
        for level in self._levels[:-1]:
            longer = hashes[-1].copy()
            longer[level.size :] += hashes[-1][: -level.size] * np.uint64(level.power)
            hashes.append(longer)
        return hashes

    def _extend_at_once(self, end: int) -> None:
        begin = max(0, self._n - 2 * self._levels[-1].size)
        for level, values in zip(self._levels, self._hashes(begin, end - 1)):
            first = max(self._n - 1, level.size - 1)  # the n-gram at the end of what was known has a successor now
            if first < end - 1:
                level.add_all(values[first - begin :], first)
                if self._hits is not None and level is self._levels[0]:
                    np.add.at(self._hits, level.places(values[first - begin :]), 1)
        self._restart(end)

    def find(self, n: int) -> Found | None:
        """What may follow the first ``n`` tokens: from the longest n-gram that occurred before, its last occurrence."""
        if n != self._n:  # the beginning is still being indexed
            return None
        for level in reversed(self._levels):
            end = level.ends[level.newest]
            if end and n > level.size and self._is_frequent():
                n_match = self._n_match(end, n)
                if n_match >= level.size:
                    return Found(self._continuation(end, n), n_match)
        return None

    def _is_frequent(self) -> bool:
        return self._hits is None or int(self._hits[self._levels[0].newest]) >= self._min_hits

    def _n_match(self, end: int, n: int) -> int:
        """How many tokens before ``end`` are those before ``n``."""
        most = min(end, max(MOST_COMPARED, self._levels[0].size))
        then, now = self._tokens[end - most : end].tolist(), self._tokens[n - most : n].tolist()
        if then == now:
            return most
        return next(i for i, (a, b) in enumerate(zip(reversed(then), reversed(now))) if a != b)

    def _continuation(self, end: int, n: int) -> list[int]:
        """The tokens from ``end`` on; where they run into the end of all, the repetition goes on."""
        known = self._tokens[end : min(end + self._size, n)].tolist()
        while len(known) < self._size:
            known.extend(known[: self._size - len(known)])
        return known
