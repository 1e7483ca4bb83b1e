"""Byte-pair encoding with the file's merges: of bytes (`gpt2`), or of characters with marked spaces (`gemma4`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from pyjet.model.byte_level import piece_bytes
from pyjet.model.pretokenizers import pre_tokenizer
from pyjet.model.text_coding import TextCoding, bpe_backend, has_bytes, marked_piece, unknown_text
from pyjet.model.vocabulary import Vocabulary, string_list

VOCAB_TYPE = 2


def byte_level_coding(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> TextCoding:
    """Raises ModelError for an unknown pre-tokenizer or merges that cannot be used."""
    name = metadata.get("tokenizer.ggml.pre", "default")
    pre = pre_tokenizer(name if isinstance(name, str) else repr(name))
    merges = usable_merges(metadata, vocabulary.ids)
    backend = bpe_backend(vocabulary.ids, merges, ignore_merges=pre.ignore_merges)
    backend.pre_tokenizer = pre.build()
    return TextCoding(VOCAB_TYPE, backend, piece_bytes, add_bos=pre.add_bos)


def marked_space_coding(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> TextCoding:
    """Lines and runs of line breaks are encoded one by one; such a run that is a token stays whole."""
    backend = bpe_backend(
        vocabulary.ids, usable_merges(metadata, vocabulary.ids), byte_fallback=has_bytes(vocabulary),
        unknown=unknown_text(vocabulary),
    )  # fmt: skip
    breaks = {text: index for text, index in vocabulary.ids.items() if not text.strip("\n")}
    backend.pre_tokenizer = Split(Regex(r"[^\n]+|\n+"), "isolated")
    return TextCoding(VOCAB_TYPE, backend, marked_piece, add_bos=True, marks_spaces=True, line_breaks=breaks)


def usable_merges(metadata: Mapping[str, Any], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """A merge whose parts or result are no tokens can never contribute one, and the library rejects it."""
    pairs = dict.fromkeys(_pair(merge) for merge in string_list(metadata, "merges"))
    return [pair for pair in pairs if pair[0] in ids and pair[1] in ids and pair[0] + pair[1] in ids]


def _pair(merge: str) -> tuple[str, str]:
    """The two sides of "Ġ t"; the first side may itself begin with a space."""
    left, _, right = merge[1:].partition(" ")
    return merge[:1] + left, right
