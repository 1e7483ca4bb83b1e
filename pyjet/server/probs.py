"""Token probabilities in llama-server's form, the same for ``n_probs`` and OpenAI's ``logprobs``."""

from __future__ import annotations

import codecs
import math
from typing import TYPE_CHECKING, Any

from pyjet.engine.request import TokenProbs
from pyjet.server.json_fields import FLOAT32_MAX, float32

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer


def probs_entry(
    token: int, text: str, probs: TokenProbs, tokenizer: Tokenizer, *, post_sampling: bool, special: bool
) -> dict[str, Any]:
    """One generated token: ``text`` is what it added to the answer, then the candidates, best first.

    ``post_sampling`` shows probabilities after the sampler chain (``prob``, ``top_probs``) instead of raw
    log-probabilities; ``special`` shows control tokens as text.
    """
    value, top = ("prob", "top_probs") if post_sampling else ("logprob", "top_logprobs")
    return {
        "id": token,
        "token": text,
        "bytes": list(text.encode()),
        value: _json_number(probs.logprob),
        top: [_candidate(i, number, value, tokenizer, special) for i, number in probs.top],
    }


def _candidate(token: int, number: float, value: str, tokenizer: Tokenizer, special: bool) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token) if special or not tokenizer.is_special(token) else b""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(raw)  # drops an incomplete character at the end
    return {"id": token, "token": text, "bytes": list(raw), value: _json_number(number)}


def _json_number(number: float) -> float:
    """JSON has no infinity: the logarithm of 0 is the lowest single-precision number."""
    return float32(number) if math.isfinite(number) else -FLOAT32_MAX
