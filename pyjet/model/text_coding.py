"""What differs between kinds of vocabularies: how plain text becomes tokens, and which bytes a normal token is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from pyjet.model.errors import ModelError
from pyjet.model.vocabulary import Vocabulary

SPACE_MARK = "▁"  # U+2581, which SentencePiece writes for a space
_BREAKS = re.compile(r"(\n+)")


@dataclass(frozen=True)
class TextCoding:
    """One vocabulary's. Special tokens are cut out of a text before; the backend gets what is between them."""

    vocab_type: int  # llama_vocab_type, as /v1/models shows it: 1 SentencePiece, 2 byte-pair encoding
    backend: Backend
    piece: Callable[[str], bytes]  # bytes of a normal token, from its vocabulary string
    add_bos: bool  # defaults of tokenizer.ggml.add_bos_token and add_eos_token
    add_eos: bool = False
    marks_spaces: bool = False  # a space is written SPACE_MARK
    space_first: bool = False  # text at the beginning and behind a special token gets a space in front
    line_breaks: Mapping[str, int] = field(default_factory=dict)  # runs of line breaks that are tokens as a whole

    def cut(self, text: str) -> list[str | int]:
        """The runs of line breaks that are tokens, and what is between them."""
        if not self.line_breaks or "\n" not in text:
            return [text]
        return [self.line_breaks.get(part, part) for part in _BREAKS.split(text) if part]

    def prepare(self, text: str, *, is_first: bool) -> str:
        """The form in which the backend takes a text; ``is_first``: at the beginning or behind a special token."""
        if self.space_first and is_first:
            text = " " + text
        return text.replace(" ", SPACE_MARK) if self.marks_spaces else text


def marked_piece(text: str) -> bytes:
    """Bytes of a normal token of a vocabulary that marks spaces."""
    return text.replace(SPACE_MARK, " ").encode("utf-8")


def bpe_backend(
    ids: Mapping[str, int], merges: list[tuple[str, str]], *, ignore_merges: bool = False, byte_fallback: bool = False,
    unknown: str | None = None,
) -> Backend:  # fmt: skip
    """Merges in order of urgency. A character that is no token: its bytes with ``byte_fallback``, else ``unknown``.

    Raises ModelError when the library does not take them.
    """
    try:
        return Backend(
            BPE(dict(ids), merges, ignore_merges=ignore_merges, byte_fallback=byte_fallback, unk_token=unknown)
        )
    except Exception as error:  # the library's own error type is not public
        raise ModelError(f"metadata keys 'tokenizer.ggml.tokens' and 'tokenizer.ggml.merges': {error}") from None


def has_bytes(vocabulary: Vocabulary) -> bool:
    """Whether any text can be written, byte by byte if need be."""
    return all(f"<0x{byte:02X}>" in vocabulary.ids for byte in range(256))


def unknown_text(vocabulary: Vocabulary) -> str | None:
    index = vocabulary.roles["unk"]
    return None if index is None else vocabulary.texts[index]


def metadata_flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    """The bool under tokenizer.ggml.`name`; ModelError for another type."""
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise ModelError(f"metadata key 'tokenizer.ggml.{name}' is {value!r}, expected true or false")
    return value
