"""Which blocks of token ids the draft head looks at besides the lowest ids: those that occurred lately."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np

from pyjet.engine.prefix_tree import Tokens
from pyjet.engine.speculation_settings import DRAFT_BLOCK
from pyjet.native.step import Int32Array

MAX_BLOCKS = 64  # PJ_MAX_DRAFT_BLOCKS
N_RECENT = 8192  # tokens of a prompt that count as recent


class RecentBlocks:
    """Blocks of one sequence from ``first`` on. BPE numbers tokens by frequency, so most tokens lie below it."""

    def __init__(self, first: int) -> None:
        self.version = 0  # changes when the blocks do
        self._first = first
        self._blocks: dict[int, None] = {}  # the most recent one is last

    @property
    def newest_first(self) -> list[int]:
        return list(reversed(self._blocks))

    def read(self, tokens: Tokens) -> None:
        """All tokens at once, before any other."""
        blocks = tokens[-N_RECENT:] // DRAFT_BLOCK
        found, last = np.unique(blocks[blocks >= self._first][::-1], return_index=True)
        recent = found[np.argsort(last)][:MAX_BLOCKS]
        self._blocks = dict.fromkeys(recent[::-1].tolist())
        self.version += 1

    def add(self, token: int) -> None:
        block = token // DRAFT_BLOCK
        if block < self._first:
            return
        if block in self._blocks:
            del self._blocks[block]
        else:
            self.version += 1
            if len(self._blocks) == MAX_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
        self._blocks[block] = None


def merged(recents: Iterable[RecentBlocks]) -> Int32Array:
    """int32[up to MAX_BLOCKS]: the most recent blocks of all sequences, as many of each as there is room for."""
    blocks: dict[int, None] = {}
    for of_rank in zip_longest(*(recent.newest_first for recent in recents)):
        blocks.update(dict.fromkeys([block for block in of_rank if block is not None]))
        if len(blocks) > MAX_BLOCKS:
            break
    return np.array(sorted(list(blocks)[:MAX_BLOCKS]), np.int32)
