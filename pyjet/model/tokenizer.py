"""Text to token ids and back, from GGUF metadata alone.

What the kinds of vocabularies do with plain text is the business of their TextCoding, which runs in the `tokenizers`
library. Special tokens are cut out of the text before it, with llama-server's rules, which differ from that library's:
the longest token text is searched first in the whole text, control tokens are only found with parse_special,
user-defined tokens always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyjet.model.byte_pairs import byte_level_coding, marked_space_coding
from pyjet.model.errors import ModelError
from pyjet.model.piece_cache import PieceCache
from pyjet.model.sentence_pieces import sentence_piece_coding
from pyjet.model.text_coding import TextCoding, metadata_flag
from pyjet.model.vocabulary import Vocabulary

#: tokenizer.ggml.model -> how such a vocabulary codes text
CODINGS: dict[str, Callable[[Mapping[str, Any], Vocabulary], TextCoding]] = {
    "gpt2": byte_level_coding,
    "llama": sentence_piece_coding,
    "gemma4": marked_space_coding,
}
_BLANKS = " \t\n\v\f\r"


class Tokenizer:
    """One model's tokenizer. Thread-safe; encoding releases the GIL."""

    def __init__(self, vocabulary: Vocabulary, coding: TextCoding, *, add_bos: bool, add_eos: bool) -> None:
        self.vocabulary = vocabulary
        self.vocab_type = coding.vocab_type
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
        self._coding = coding
        self._special_ids = vocabulary.control | vocabulary.unknown
        self._always = self._longest_first(vocabulary.user_defined - self._special_ids)
        self._parsed = self._longest_first(vocabulary.user_defined | self._special_ids)
        self._bytes: dict[int, bytes] = {}
        self._pieces = PieceCache()

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Build from the tokenizer.ggml.* keys; raises ModelError naming the key that does not work."""
        model = metadata.get("tokenizer.ggml.model")
        if not isinstance(model, str) or model not in CODINGS:
            raise ModelError(
                f"metadata key 'tokenizer.ggml.model' is {model!r}; 'gpt2' (byte-level BPE), 'llama' (SentencePiece) "
                "and 'gemma4' work, other kinds of vocabularies (bert: WordPiece, t5: Unigram, rwkv, plamo2) do not"
            )
        vocabulary = Vocabulary.from_metadata(metadata)
        coding = CODINGS[model](metadata, vocabulary)
        return cls(
            vocabulary,
            coding,
            # llama-server adds BOS to gemma4 texts whatever the file says: the first files had it wrong.
            add_bos=metadata_flag(metadata, "add_bos_token", coding.add_bos) or model == "gemma4",
            add_eos=metadata_flag(metadata, "add_eos_token", coding.add_eos),
        )

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = True) -> list[int]:
        """Token ids of a text.

        add_special adds BOS and EOS where the model asks for them; parse_special lets control tokens written in the
        text stand for themselves. Lone surrogates become U+FFFD.
        """
        fragments = self._partition(_valid(text), self._parsed if parse_special else self._always)
        words = [
            self._coding.prepare(fragment, is_first=i == 0 or isinstance(fragments[i - 1], int))
            for i, fragment in enumerate(fragments)
            if isinstance(fragment, str)
        ]
        encoded = iter(self._encode_words(words))
        ids: list[int] = [self.bos_id] if add_special and self.add_bos and self.bos_id is not None else []
        for fragment in fragments:
            if isinstance(fragment, str):
                ids += next(encoded)
            else:
                ids.append(fragment)
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def _encode_words(self, words: list[str]) -> list[Sequence[int]]:
        """Ids of each word; those of words that came before are looked up."""
        known = [self._pieces.get(word) for word in words]
        new = [word for word, ids in zip(words, known) if ids is None]
        encoded = iter(self._coding.backend.encode_batch_fast(new, add_special_tokens=False)) if new else iter(())
        found: list[Sequence[int]] = []
        for word, ids in zip(words, known):
            if ids is None:
                ids = next(encoded).ids
                self._pieces.put(word, ids)
            found.append(ids)
        return found

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
        strips = self.vocabulary.strips_right
        for literal, index in special:
            if literal in text:
                blanks = _BLANKS if index in strips else ""
                fragments = [piece for part in fragments for piece in _cut(part, literal, index, blanks)]
        if self._coding.line_breaks:
            cut = self._coding.cut
            fragments = [p for part in fragments for p in ([part] if isinstance(part, int) else cut(part))]
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
        return self._coding.piece(text)


def _cut(part: str | int, literal: str, index: int, blanks: str) -> list[str | int]:
    """A plain piece around each occurrence of ``literal``; ``blanks`` behind it are dropped."""
    if isinstance(part, int) or literal not in part:
        return [part]
    pieces: list[str | int] = []
    for position, plain in enumerate(part.split(literal)):
        if position:
            pieces.append(index)
            plain = plain.lstrip(blanks) if blanks else plain
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
