"""Logits of pyjet for one window, with its rows cut in different ways."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cli.llama_cpp import Logits, Tokens
from cli.sequence import Sequence, open_engine
from pyjet.model.reader import Model
from pyjet.native.config import Device, KvType

# name -> rows of one step; every path must give the same bits
ROW_PATHS = {"chunks of 512": 512, "chunks of 7": 7, "token by token": 1}
MAIN_PATH = "chunks of 512"


def pyjet_logits(
    model: Model, tokens: Tokens, kv_type: KvType, paths: Iterable[str] = ROW_PATHS, device: Device = "cpu"
) -> dict[str, Logits]:
    """Logits float32 [n, n_vocab] of each row path, on one thread of the CPU backend or on the GPU."""
    found = {}
    max_rows = max(ROW_PATHS.values())
    with open_engine(model, len(tokens), max_rows=max_rows, kv_type=kv_type, n_threads=1, device=device) as engine:
        for name in paths:
            found[name] = Sequence(engine, ROW_PATHS[name]).append(tokens, all_logits=True)
    return found


def same_bits(paths: dict[str, Logits]) -> bool:
    """Whether all row paths gave bit for bit the same logits."""
    first, *others = paths.values()
    return all(np.array_equal(first.view(np.uint32), other.view(np.uint32)) for other in others)
