"""Texts that interrupt DRY's repetitions, as the tokens that the engine knows them by."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pyjet.engine.request import Breakers

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer

_MOST_BYTES = 40  # of a text; llama-server cuts longer ones, too
_MOST_TOKENS = 20  # behind the first one of a sequence
_END = b"\xff"  # no byte of a text


@lru_cache(maxsize=32)
def token_breakers(texts: tuple[str, ...], tokenizer: Tokenizer) -> Breakers:
    """All ways to meet one of ``texts``: tokens that hold it, and tokens that end with its beginning.

    The latter are followed by the tokens of its rest.
    """
    tokens: set[int] = set()
    sequences: set[tuple[int, ...]] = set()
    for text in texts:
        raw = text.encode("utf-8", "replace")[:_MOST_BYTES]
        if not raw:
            continue
        with_text = _tokens_with(raw, tokenizer)
        tokens |= with_text
        for n in range(1, len(raw)):
            heads = _tokens_with(raw[:n] + _END, tokenizer) - with_text
            tail = _tail(raw[n:], tokenizer) if heads else []
            sequences.update((head, *tail) for head in heads)
    return Breakers(frozenset(tokens), tuple(sorted(sequences)))


def _tokens_with(raw: bytes, tokenizer: Tokenizer) -> set[int]:
    """Tokens in whose text ``raw`` is; with ``_END`` behind it those that end with it."""
    joined, ends = _vocabulary(tokenizer)
    places = [match.start() for match in re.finditer(re.escape(raw), joined)]
    return set(np.searchsorted(ends, np.array(places, np.int64), side="right").tolist())


@lru_cache(maxsize=2)
def _vocabulary(tokenizer: Tokenizer) -> tuple[bytes, npt.NDArray[np.int64]]:
    """All texts one behind the other, each with ``_END`` behind it, and int64[n]: where the next one begins."""
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
    ends = np.cumsum(np.fromiter((len(piece) + 1 for piece in pieces), np.int64, len(pieces)))
    return _END.join(pieces) + _END, ends


def _tail(rest: bytes, tokenizer: Tokenizer) -> list[int]:
    text = rest.decode("utf-8", "replace")
    return tokenizer.encode(text, parse_special=False)[:_MOST_TOKENS]
