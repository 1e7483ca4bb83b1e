"""The ``logit_bias`` field: numbers added to the logits of single tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pyjet.server.json_fields import float32

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer


def end_token_bans(tokenizer: Tokenizer) -> list[tuple[int, float]]:
    """The biases behind ``ignore_eos``: no token that ends a text can be chosen."""
    return [(token, -math.inf) for token in sorted(tokenizer.eog_ids)]


def parse_bias(bias: Any, tokenizer: Tokenizer) -> list[tuple[int, float]]:
    """``[[id or text, b], …]`` or ``{"id or text": b}``; ``false`` bans; malformed entries are skipped."""
    if isinstance(bias, dict):
        pairs: list[Any] = [[int(key) if _is_integer(key) else key, value] for key, value in bias.items()]
    else:
        pairs = bias if isinstance(bias, list) else []
    result: list[tuple[int, float]] = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or pair[1] is True:
            continue
        key, value = pair
        if value is False:
            value = -math.inf
        if not isinstance(value, (int, float)) or math.isnan(value):
            continue
        result += [(token, float32(value)) for token in _bias_tokens(key, tokenizer)]
    return result


def _is_integer(text: str) -> bool:
    digits = text.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19


def _bias_tokens(key: Any, tokenizer: Tokenizer) -> list[int]:
    if isinstance(key, str):
        return tokenizer.encode(key, add_special=False, parse_special=False)
    if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < tokenizer.n_vocab:
        return [key]
    return []
