"""The vocabulary as the infill sampler sees it: which texts begin with which, and what ends an answer."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pyjet.engine.request import InfillTokens

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer


@lru_cache(maxsize=2)
def infill_tokens(tokenizer: Tokenizer) -> InfillTokens | None:
    """None where no token ends a text. Sorts all texts, about half a second for a large vocabulary."""
    end = tokenizer.eos_id if tokenizer.eot_id is None else tokenizer.eot_id
    if end is None:
        return None
    n = tokenizer.n_vocab
    pieces = [b"" if tokenizer.is_special(token) else tokenizer.token_bytes(token) for token in range(n)]
    texts = sorted(set(pieces))
    ranks = {text: rank for rank, text in enumerate(texts)}
    rank = np.fromiter((ranks[piece] for piece in pieces), np.int32, n)
    last = np.array(last_beginning_with(texts), np.int32)[rank]
    last[[not piece for piece in pieces]] = -1
    is_end = np.zeros(n, bool)
    is_end[sorted(tokenizer.eog_ids)] = True
    return InfillTokens(rank, last, is_end, end)


def last_beginning_with(texts: list[bytes]) -> list[int]:
    """For each of ``texts``, sorted and without repetitions: the place of the last one that begins with it."""
    last = [0] * len(texts)
    open_texts: list[int] = []  # each a beginning of the next one
    for i, text in enumerate(texts):
        while open_texts and not text.startswith(texts[open_texts[-1]]):
            last[open_texts.pop()] = i - 1
        open_texts.append(i)
    for i in open_texts:
        last[i] = len(texts) - 1
    return last
