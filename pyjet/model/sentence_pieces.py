"""SentencePiece vocabularies with scores (`tokenizer.ggml.model` = llama), encoded as llama-server does it.

Neighbours are merged as long as what they make together is a token, the one with the highest score first, the leftmost
of equals. This is byte-pair encoding with all pairs that make a token as merges, in the order of the tokens' scores.
A character that is no token gives the tokens of its UTF-8 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyjet.model.errors import ModelError
from pyjet.model.text_coding import TextCoding, bpe_backend, has_bytes, marked_piece, metadata_flag, unknown_text
from pyjet.model.vocabulary import Vocabulary

_SCORES = "tokenizer.ggml.scores"


def sentence_piece_coding(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> TextCoding:
    """Raises ModelError when the scores are missing or no numbers."""
    return TextCoding(
        vocab_type=1,
        backend=bpe_backend(
            vocabulary.ids, merges_by_score(vocabulary, _scores(metadata, len(vocabulary.texts))),
            byte_fallback=has_bytes(vocabulary), unknown=unknown_text(vocabulary),
        ),
        piece=marked_piece,
        add_bos=True,
        marks_spaces=True,
        space_first=metadata_flag(metadata, "add_space_prefix", True),
    )  # fmt: skip


def merges_by_score(vocabulary: Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """All pairs of tokens that make a token together, best score first."""
    ids = vocabulary.ids
    merges = [
        (-scores[index], index, -cut, text[:cut], text[cut:])
        for index, text in enumerate(vocabulary.texts)
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    merges.sort()
    return [(left, right) for *_, left, right in merges]


def _scores(metadata: Mapping[str, Any], n_tokens: int) -> list[float]:
    scores = metadata.get(_SCORES)
    numbers = isinstance(scores, list) and all(isinstance(s, (int, float)) and math.isfinite(s) for s in scores)
    if not isinstance(scores, list) or not numbers or len(scores) < n_tokens:
        raise ModelError(f"metadata key '{_SCORES}': expected {n_tokens} numbers, one for each token")
    return scores
