"""The tokenizer: special tokens, roles, odd vocabularies, round trips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.model import ModelError, Tokenizer
from pyjet.model.byte_level import BYTE_ALPHABET
from pyjet.model.vocabulary import TokenKind
from tests.support.hang_guard import hang_guard

SPECIALS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|endoftext|>"]
BYTES = list(BYTE_ALPHABET)


def build(extra: list[tuple[str, int]], **keys: Any) -> Tokenizer:
    """A byte-level vocabulary (id = byte) with extra (text, kind) tokens from id 256 on."""
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": BYTES + [text for text, _ in extra],
        "tokenizer.ggml.token_type": [1] * 256 + [kind for _, kind in extra],
        "tokenizer.ggml.merges": ["Ġ t"],
        **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
    }
    return Tokenizer.from_metadata({key: value for key, value in metadata.items() if value is not None})


def test_embedded_tokenizer(tokenizer: Tokenizer) -> None:
    assert tokenizer.n_vocab == 7424 and tokenizer.vocab_type == 2
    assert tokenizer.token_text(7400) == "<|im_end|>" and tokenizer.eos_id == 7400 and tokenizer.pad_id == 7398
    assert {tokenizer.token_text(index) for index in tokenizer.eog_ids} >= {"<|im_end|>", "<|endoftext|>"}
    assert not tokenizer.add_bos and not tokenizer.add_eos
    assert tokenizer.encode("hi", add_special=True) == tokenizer.encode("hi")
    assert tokenizer.token_id("<|im_start|>") is not None and tokenizer.token_id("no such token") is None


def test_control_tokens_only_with_parse_special(tokenizer: Tokenizer) -> None:
    start = tokenizer.token_id("<|im_start|>")
    assert tokenizer.encode("<|im_start|>user")[0] == start
    plain = tokenizer.encode("<|im_start|>user", parse_special=False)
    assert start not in plain and tokenizer.decode(plain) == "<|im_start|>user"
    assert tokenizer.decode([start, *tokenizer.encode("a")], special=False) == "a"
    assert (
        tokenizer.is_control(start) and tokenizer.is_special(start) and tokenizer.token_bytes(start) == b"<|im_start|>"
    )


def test_user_defined_tokens_are_always_found() -> None:
    tokenizer = build([("<tool>", TokenKind.USER_DEFINED), ("<ctl>", TokenKind.CONTROL)])
    assert tokenizer.encode("a<tool><ctl>", parse_special=False)[:2] == [ord("a"), 256]
    assert 257 not in tokenizer.encode("a<tool><ctl>", parse_special=False)
    assert tokenizer.encode("a<tool><ctl>") == [ord("a"), 256, 257]
    assert tokenizer.decode([256, 257], special=False) == "<tool>"


def test_longest_token_wins_wherever_it_starts() -> None:
    tokenizer = build([("<ab", TokenKind.CONTROL), ("b><c>", TokenKind.CONTROL)])
    assert tokenizer.encode("<ab><c>") == [*b"<a", 257]


def test_words_that_look_like_roles() -> None:
    names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>", "<|eom_id|>"]
    tokenizer = build([(name, TokenKind.NORMAL) for name in [*names, "<|im_end|>"]])
    assert (tokenizer.fim_pre, tokenizer.fim_suf, tokenizer.fim_mid) == (256, 257, 258)
    assert (tokenizer.fim_rep, tokenizer.fim_sep) == (259, 260)
    assert tokenizer.eot_id == 262 and {259, 260, 261, 262} <= tokenizer.eog_ids
    assert all(tokenizer.is_control(index) for index in range(256, 263))
    assert build([("<x>", 1)], fim_pre_token_id=3).fim_pre == 3
    assert build([("<x>", 1)], fim_pre_token_id=3, prefix_token_id=4).fim_pre == 4


def test_channel_formats_keep_their_end_token() -> None:
    names = ["<|end|>", "<|return|>", "<|call|>", "<|channel|>"]
    tokenizer = build([(name, TokenKind.CONTROL) for name in names])
    assert {257, 258} <= tokenizer.eog_ids and not {256, 259} & tokenizer.eog_ids
    assert not tokenizer.is_control(256) and not tokenizer.is_control(259)


def test_bos_and_eos_are_added_when_the_model_asks() -> None:
    ends = [("<s>", TokenKind.CONTROL), ("<e>", TokenKind.CONTROL)]
    tokenizer = build(ends, bos_token_id=256, eos_token_id=257, add_bos_token=True, add_eos_token=True)
    assert tokenizer.encode("a", add_special=True) == [256, ord("a"), 257]
    assert tokenizer.encode("", add_special=True) == [256, 257] and tokenizer.encode("") == []
    assert tokenizer.encode("a") == [ord("a")]
    assert build(ends, pre="llama-bpe", bos_token_id=256).add_bos
    assert not build(ends, pre="llama-bpe", bos_token_id=256, add_bos_token=False).add_bos
    assert build(ends, bos_token_id=99999).bos_id == 11  # outside the vocabulary: as if it were not there


def test_kinds_of_pieces() -> None:
    kinds = [("<0x0A>", TokenKind.BYTE), ("unused", TokenKind.UNUSED), ("<unk>", TokenKind.UNKNOWN), ("é€", 1), ("", 1)]
    tokenizer = build(kinds)
    assert tokenizer.token_bytes(256) == b"\n" and tokenizer.token_bytes(257) == b""
    assert tokenizer.is_special(258) and tokenizer.token_bytes(258) == b"<unk>"
    assert tokenizer.token_bytes(259) == b"\xe9[UNK_BYTE_0xe282ac" + "é€]".encode()
    assert tokenizer.token_text(260) == "[EMPTY_260]"
    assert [tokenizer.token_bytes(index) for index in range(256)] == [bytes([byte]) for byte in range(256)]
    for index in (-1, 261):
        with pytest.raises(IndexError, match=f"token {index} is outside"):
            tokenizer.token_bytes(index)


def test_unusable_merges_and_missing_bytes() -> None:
    tokenizer = build([("ab", 1)], merges=["a b", "b c", "nonsense", " x y", "a b"])
    assert tokenizer.encode("abc") == [256, ord("c")]
    without_a = build([], tokens=[text if text != "a" else "##" for text in BYTES])
    assert without_a.encode("bab") == [ord("b"), ord("b")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, "tokenizer.ggml.model' is 'bert'; 'gpt2'"),
        ({"model": "t5"}, "t5: Unigram"),
        ({"model": "rwkv"}, "tokenizer.ggml.model' is 'rwkv'"),
        ({"model": ["llama"]}, "tokenizer.ggml.model' is ['llama']"),
        ({"model": "llama"}, "tokenizer.ggml.scores': expected 256 numbers"),
        ({"model": "llama", "scores": [0.0] * 255}, "tokenizer.ggml.scores': expected 256 numbers"),
        ({"model": "llama", "scores": [float("nan")] * 256}, "tokenizer.ggml.scores': expected 256 numbers"),
        ({"model": "llama", "scores": [0.0] * 256, "add_space_prefix": 1}, "tokenizer.ggml.add_space_prefix' is 1"),
        ({"pre": "kimi-k2"}, "tokenizer.ggml.pre' is 'kimi-k2'"),
        ({"pre": 5}, "tokenizer.ggml.pre"),
        ({"tokens": ["a", "a"]}, "has the token 'a' twice"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens"),
        ({"merges": None}, "tokenizer.ggml.merges"),
        ({"token_type": [1, 1]}, "expected 256 integers"),
        ({"eos_token_id": "end"}, "tokenizer.ggml.eos_token_id' is 'end'"),
        ({"add_bos_token": 1}, "tokenizer.ggml.add_bos_token' is 1"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        build([], **changes)
    assert message in str(caught.value)


def test_lone_surrogates_become_replacement_characters(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


def test_invalid_bytes_decode_to_replacement_characters(tokenizer: Tokenizer) -> None:
    broken = tokenizer.encode("€")[:1]
    assert tokenizer.decode(broken) == "\ufffd"


@settings(max_examples=300, deadline=None)
@given(text=st.text(), parse_special=st.booleans())
def test_any_text_survives(tokenizer: Tokenizer, text: str, parse_special: bool) -> None:
    assert tokenizer.decode(tokenizer.encode(text, parse_special=parse_special)) == text


@settings(max_examples=200, deadline=None)
@given(parts=st.lists(st.one_of(st.sampled_from(SPECIALS), st.text(alphabet="<|im_start>é 's\n\t", max_size=8))))
def test_special_tokens_between_text_survive(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_long_inputs_do_not_hang(tokenizer: Tokenizer) -> None:
    turn = "<|im_start|>user\ndef f(x):\n    return x + 1<|im_end|>\n"
    for text in (turn * 1500, "a" * 300_000, " " * 300_000, "é" * 100_000, " \n" * 100_000, "<|im_" * 50_000):
        with hang_guard():
            ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
