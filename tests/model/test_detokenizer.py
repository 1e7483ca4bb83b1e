"""Incremental text equals decoding at once, and no character is ever broken."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.model import Detokenizer, Tokenizer
from pyjet.model.byte_level import BYTE_ALPHABET


def stream(tokenizer: Tokenizer, ids: list[int], special: bool = False) -> list[str]:
    detokenizer = Detokenizer(tokenizer, special)
    return [*(detokenizer.push(index) for index in ids), detokenizer.finish()]


def byte_ids(tokenizer: Tokenizer, raw: bytes) -> list[int]:
    ids = [tokenizer.token_id(BYTE_ALPHABET[byte]) for byte in raw]
    return [index for index in ids if index is not None]


def test_a_character_appears_when_it_is_complete(tokenizer: Tokenizer) -> None:
    pieces = stream(tokenizer, byte_ids(tokenizer, "a€🙂".encode()))
    assert pieces == ["a", "", "", "€", "", "", "", "🙂", ""]


def test_pending_bytes_are_visible(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    for index in byte_ids(tokenizer, "€".encode()[:2]):
        detokenizer.push(index)
    assert detokenizer.pending == b"\xe2\x82"
    assert detokenizer.finish() == "\ufffd" and detokenizer.pending == b""


def test_invalid_bytes_do_not_wait(tokenizer: Tokenizer) -> None:
    assert stream(tokenizer, byte_ids(tokenizer, b"\xff\xe2a\xc3")) == ["\ufffd", "", "\ufffda", "", "\ufffd"]


def test_control_tokens_give_text_on_request_only(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<|im_end|>b")
    assert "".join(stream(tokenizer, ids)) == "ab"
    assert "".join(stream(tokenizer, ids, special=True)) == "a<|im_end|>b"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_ids_give_the_text_of_decode(tokenizer: Tokenizer, data: st.DataObject) -> None:
    index = st.integers(0, tokenizer.n_vocab - 1)
    ids = data.draw(st.lists(st.one_of(index, st.integers(0, 255)), max_size=40))
    for special in (False, True):
        assert "".join(stream(tokenizer, ids, special)) == tokenizer.decode(ids, special=special)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_valid_text(tokenizer: Tokenizer, raw: bytes) -> None:
    pieces = stream(tokenizer, byte_ids(tokenizer, raw))
    assert "".join(pieces) == raw.decode("utf-8", "replace")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_valid_text_never_shows_a_replacement(tokenizer: Tokenizer, text: str) -> None:
    pieces = stream(tokenizer, byte_ids(tokenizer, text.encode()))
    assert "".join(pieces) == text and all(piece.encode("utf-8") for piece in pieces if piece)
