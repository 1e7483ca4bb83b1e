"""Texts that interrupt DRY's repetitions, as the tokens that the engine knows them by."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pyjet.engine.request import Breakers

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer

_MOST_BYTES = 40  # of a text; llama-server cuts longer ones, too
_MOST_TOKENS = 20  # behind the first one of a sequence


@lru_cache(maxsize=32)
def token_breakers(texts: tuple[str, ...], tokenizer: Tokenizer) -> Breakers:
    """All ways to meet one of ``texts``: tokens that hold it, and tokens that end with its beginning.

    The latter are followed by the tokens of its rest. Looks at the whole vocabulary, about 10 ms for each byte.
    """
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
    tokens: set[int] = set()
    sequences: set[tuple[int, ...]] = set()
    for text in texts:
        raw = text.encode("utf-8", "replace")[:_MOST_BYTES]
        if not raw:
            continue
        tails = {raw[:n]: _tail(raw[n:], tokenizer) for n in range(1, len(raw))}
        with_text = {token for token, piece in enumerate(pieces) if raw in piece}
        tokens |= with_text
        for begin, tail in tails.items():
            heads = (token for token, piece in enumerate(pieces) if piece.endswith(begin) and token not in with_text)
            sequences.update((token, *tail) for token in heads)
    return Breakers(frozenset(tokens), tuple(sorted(sequences)))


def _tail(rest: bytes, tokenizer: Tokenizer) -> list[int]:
    text = rest.decode("utf-8", "replace")
    return tokenizer.encode(text, parse_special=False)[:_MOST_TOKENS]
