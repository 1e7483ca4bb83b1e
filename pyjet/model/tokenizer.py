"""Text to token ids and back, from GGUF metadata alone.

Byte-pair encoding runs in the `tokenizers` library. Special tokens are cut out of the text before it, with
llama-server's rules, which differ from that library's: the longest token text is searched first in the whole
text, control tokens are only found with parse_special, user-defined tokens always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from pyjet.model.byte_level import piece_bytes
from pyjet.model.errors import ModelError
from pyjet.model.pretokenizers import PreTokenizer, pre_tokenizer
from pyjet.model.vocabulary import Vocabulary, string_list

#: llama_vocab_type of byte-pair encoding, shown as `vocab_type` by /v1/models.
VOCAB_TYPE_BPE = 2


class Tokenizer:
    """One model's tokenizer. Thread-safe; encoding releases the GIL."""

    vocab_type = VOCAB_TYPE_BPE

    def __init__(self, vocabulary: Vocabulary, backend: Backend, *, add_bos: bool, add_eos: bool) -> None:
        self.vocabulary = vocabulary
        self.n_vocab = len(vocabulary.texts)
        self.bos_id = vocabulary.roles["bos"]
        self.eos_id = vocabulary.roles["eos"]
        self.pad_id = vocabulary.roles["pad"]
        self.eot_id = vocabulary.roles["eot"]
        self.fim_pre = vocabulary.roles["fim_pre"]
        self.fim_suf = vocabulary.roles["fim_suf"]
        self.fim_mid = vocabulary.roles["fim_mid"]
        self.fim_rep = vocabulary.roles["fim_rep"]
        self.fim_sep = vocabulary.roles["fim_sep"]
        self.add_bos = add_bos and self.bos_id is not None
        self.add_eos = add_eos and self.eos_id is not None
        self.eog_ids = vocabulary.ends
        self._backend = backend
        self._special_ids = vocabulary.control | vocabulary.unknown
        self._always = self._longest_first(vocabulary.user_defined - self._special_ids)
        self._parsed = self._longest_first(vocabulary.user_defined | self._special_ids)
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Build from the tokenizer.ggml.* keys; raises ModelError naming the key that does not work."""
        model = metadata.get("tokenizer.ggml.model")
        if model != "gpt2":
            raise ModelError(f"metadata key 'tokenizer.ggml.model' is {model!r}; 'gpt2' (byte-level BPE) works")
        pre_name = metadata.get("tokenizer.ggml.pre", "default")
        pre = pre_tokenizer(pre_name if isinstance(pre_name, str) else repr(pre_name))
        vocabulary = Vocabulary.from_metadata(metadata)
        return cls(
            vocabulary,
            _backend(vocabulary, string_list(metadata, "merges"), pre),
            add_bos=_flag(metadata, "add_bos_token", pre.add_bos),
            add_eos=_flag(metadata, "add_eos_token", False),
        )

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """Token ids of a text.

        add_special adds BOS and EOS where the model asks for them; parse_special lets control tokens written in the
        text stand for themselves. Lone surrogates become U+FFFD.
        """
        fragments = self._partition(_valid(text), self._parsed if parse_special else self._always)
        words = [fragment for fragment in fragments if isinstance(fragment, str)]
        encoded = iter(self._backend.encode_batch_fast(words, add_special_tokens=False))
        ids: list[int] = [self.bos_id] if add_special and self.add_bos and self.bos_id is not None else []
        for fragment in fragments:
            if isinstance(fragment, str):
                ids += next(encoded).ids
            else:
                ids.append(fragment)
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """Text of the ids; bytes that are not UTF-8 become U+FFFD. special=False leaves control tokens out."""
        hidden = frozenset() if special else self._special_ids
        return b"".join(self.token_bytes(index) for index in ids if index not in hidden).decode("utf-8", "replace")

    def token_bytes(self, index: int) -> bytes:
        """Raw bytes of one token, often not UTF-8 alone; a control token gives its text. IndexError if unknown."""
        piece = self._bytes.get(index)
        if piece is None:
            piece = self._bytes[index] = self._piece(index)
        return piece

    def token_text(self, index: int) -> str:
        """The raw vocabulary string ("Ġhello"). IndexError if there is no such token."""
        if not 0 <= index < self.n_vocab:
            raise IndexError(f"token {index} is outside the vocabulary of {self.n_vocab}")
        return self.vocabulary.texts[index]

    def token_id(self, text: str) -> int | None:
        """The token whose vocabulary string is exactly `text`."""
        return self.vocabulary.ids.get(text)

    def is_control(self, index: int) -> bool:
        return index in self.vocabulary.control

    def is_special(self, index: int) -> bool:
        """Control or unknown: a token that is not part of the visible text."""
        return index in self._special_ids

    def is_eog(self, index: int) -> bool:
        return index in self.eog_ids

    def _longest_first(self, ids: Iterable[int]) -> list[tuple[str, int]]:
        texts = self.vocabulary.texts
        return sorted(((texts[index], index) for index in ids), key=lambda item: (-len(item[0].encode()), item[1]))

    def _partition(self, text: str, special: list[tuple[str, int]]) -> list[str | int]:
        """Cut the special tokens out of the text: a list of plain pieces and token ids, in order."""
        fragments: list[str | int] = [text] if text else []
        for literal, index in special:
            if literal in text:
                fragments = [piece for part in fragments for piece in _cut(part, literal, index)]
        return fragments

    def _piece(self, index: int) -> bytes:
        text = self.token_text(index)
        vocabulary = self.vocabulary
        if index in self._special_ids or index in vocabulary.user_defined:
            return text.encode("utf-8")
        if index in vocabulary.silent:
            return b""
        if index in vocabulary.byte:
            return _byte_token(text)
        return piece_bytes(text)


def _cut(part: str | int, literal: str, index: int) -> list[str | int]:
    if isinstance(part, int) or literal not in part:
        return [part]
    pieces: list[str | int] = []
    for position, plain in enumerate(part.split(literal)):
        if position:
            pieces.append(index)
        if plain:
            pieces.append(plain)
    return pieces


def _valid(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def _byte_token(text: str) -> bytes:
    """The byte of a token written "<0x0A>"; nothing if it is written in another way."""
    try:
        return bytes([int(text[3:5], 16)])
    except ValueError:
        return b""


def _flag(metadata: Mapping[str, Any], name: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise ModelError(f"metadata key 'tokenizer.ggml.{name}' is {value!r}, expected true or false")
    return value


def _backend(vocabulary: Vocabulary, merges: list[str], pre: PreTokenizer) -> Backend:
    pairs = dict.fromkeys(_pair(merge) for merge in merges)
    # A merge whose parts or result are no tokens can never contribute one, and the library rejects it.
    ids = vocabulary.ids
    usable = [pair for pair in pairs if pair[0] in ids and pair[1] in ids and pair[0] + pair[1] in ids]
    try:
        backend = Backend(BPE(ids, usable, ignore_merges=pre.ignore_merges))
    except Exception as error:  # the library's own error type is not public
        raise ModelError(f"metadata keys 'tokenizer.ggml.tokens' and 'tokenizer.ggml.merges': {error}") from None
    backend.pre_tokenizer = pre.build()
    return backend


def _pair(merge: str) -> tuple[str, str]:
    """The two sides of "Ġ t"; the first side may itself begin with a space."""
    left, _, right = merge[1:].partition(" ")
    return merge[:1] + left, right
