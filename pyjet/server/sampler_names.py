"""Names and letters of the samplers, as ``samplers`` in requests and ``--samplers`` spell them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pyjet.server.json_fields import FLOAT32_MAX

SAMPLER_LETTERS = {
    "d": "dry",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "m": "min_p",
    "t": "temperature",
    "x": "xtc",
    "i": "infill",
    "e": "penalties",
    "a": "adaptive_p",
}
_ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p"}


def _spellings() -> dict[str, str]:
    spellings = dict(_ALIASES)
    for name in SAMPLER_LETTERS.values():
        for spelling in (name, name.replace("_", "-"), name.replace("_", "")):
            spellings[spelling] = name
    return spellings


_SPELLINGS = _spellings()


def samplers_from_names(names: Iterable[str]) -> list[str]:
    """Canonical names in the given order; case, ``-`` and ``_`` do not matter; unknown names are dropped."""
    return [_SPELLINGS[name.lower()] for name in names if name.lower() in _SPELLINGS]


def samplers_from_chars(letters: str) -> list[str]:
    """Canonical names for a string with one letter per sampler; unknown letters are dropped."""
    return [SAMPLER_LETTERS[letter] for letter in letters if letter in SAMPLER_LETTERS]


def is_repeat_penalty(value: float) -> bool:
    """Whether logits can be divided and multiplied by it: llama-server takes no other ones."""
    return math.isfinite(value) and value > 0.0 and 1.0 / value <= FLOAT32_MAX
