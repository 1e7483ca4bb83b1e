"""Checkpoints of the tree by their tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.prefix_tree import Checkpoint, PrefixTree

TEXTS = st.lists(st.lists(st.integers(0, 1), max_size=7).map(tuple), min_size=1, max_size=8, unique=True)


@given(TEXTS, st.integers(1, 4))
def test_whether_more_is_known_behind_a_checkpoint(texts: list[tuple[int, ...]], page_tokens: int) -> None:
    tree = PrefixTree(page_tokens)
    checkpoints = {}
    for text in texts:
        tokens = np.array(text, np.int32)
        path, _ = tree.grow(tokens)
        node = path[-1] if path else tree.root
        tail_key = tokens[node.depth * page_tokens :].tobytes()
        checkpoints[text] = Checkpoint(node, tail_key, len(text), "turn")
        tree.add(checkpoints[text])
    for text, checkpoint in checkpoints.items():
        longer = [other for other in texts if other != text and other[: len(text)] == text]
        assert tree.has_more(checkpoint) == bool(longer)
