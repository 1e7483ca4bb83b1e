from __future__ import annotations

import numpy as np

from pyjet.engine.draft_blocks import MAX_BLOCKS, RecentBlocks, merged


def blocks(*tokens: int, first: int = 4) -> RecentBlocks:
    recent = RecentBlocks(first)
    recent.read(np.array(tokens, np.int32))
    return recent


def test_blocks_above_the_first_ones_the_newest_first() -> None:
    assert blocks(1, 64 * 9, 255, 64 * 4 + 63, 64 * 9 + 5).newest_first == [9, 4]
    assert blocks().newest_first == []


def test_a_token_makes_its_block_the_newest() -> None:
    recent = blocks(64 * 9, 64 * 5)
    version = recent.version
    recent.add(64 * 9 + 1)
    recent.add(3)
    assert recent.newest_first == [9, 5] and recent.version == version
    recent.add(64 * 7)
    assert recent.newest_first == [7, 9, 5] and recent.version != version


def test_the_oldest_block_goes() -> None:
    recent = blocks(*range(64 * 10, 64 * 100, 64))
    assert len(recent.newest_first) == MAX_BLOCKS and recent.newest_first[0] == 99
    recent.add(64 * 500)
    assert len(recent.newest_first) == MAX_BLOCKS
    assert recent.newest_first[0] == 500 and recent.newest_first[-1] == 99 - MAX_BLOCKS + 2


def test_all_sequences_have_their_newest_blocks() -> None:
    many, few = blocks(*range(64 * 10, 64 * 100, 64)), blocks(64 * 200, 64 * 99)
    both = merged([many, few]).tolist()
    assert len(both) == len(set(both)) == MAX_BLOCKS
    assert {200, 99, 98} <= set(both) and 10 not in both
    assert merged([]).shape == (0,)
