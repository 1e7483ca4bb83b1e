"""Logits of pyjet for one text, with its rows cut in different ways."""

from __future__ import annotations

import numpy as np

from cli.llama_cpp import Logits, Tokens
from cli.sequence import Sequence, open_engine
from pyjet.model.reader import Model

# name -> rows of one step; every path must give the same bits
ROW_PATHS = {"prefill": 1 << 20, "chunks of 7": 7, "token by token": 1}


def pyjet_logits(model: Model, tokens: Tokens, kv_type: str, n_threads: int) -> dict[str, Logits]:
    """Logits float32 [n, n_vocab] of each row path, on the CPU backend."""
    found = {}
    with open_engine(model, len(tokens), max_rows=len(tokens), kv_type=kv_type, n_threads=n_threads) as engine:
        for name, rows in ROW_PATHS.items():
            found[name] = Sequence(engine, min(rows, len(tokens))).append(tokens, all_logits=True)
    return found


def same_bits(paths: dict[str, Logits]) -> bool:
    """Whether all row paths gave bit for bit the same logits."""
    first, *others = paths.values()
    return all(np.array_equal(first.view(np.uint32), other.view(np.uint32)) for other in others)
