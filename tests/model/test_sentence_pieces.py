"""SentencePiece vocabularies: merges by score, bytes, spaces, BOS, special tokens; text that comes piece by piece."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.model import Detokenizer, Tokenizer
from pyjet.model.vocabulary import TokenKind

CONTROL = [("<unk>", TokenKind.UNKNOWN), ("<s>", TokenKind.CONTROL), ("</s>", TokenKind.CONTROL)]
BYTES = [(f"<0x{byte:02X}>", TokenKind.BYTE) for byte in range(256)]
WORDS = ["▁t", "he", "▁the", "er", "in", "▁a", "re", "on", "▁▁", "▁▁▁▁", "aba", "ab", "ba", "the", "▁then", "hen", "é"]
LETTERS = [*"▁abehinorst.\n"]


def build(extra: list[tuple[str, int]] = [], **keys: Any) -> Tokenizer:  # noqa: B006
    tokens = [*CONTROL, *BYTES, *((text, TokenKind.NORMAL) for text in [*WORDS, *LETTERS]), *extra]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [text for text, _ in tokens],
        "tokenizer.ggml.token_type": [int(kind) for _, kind in tokens],
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
    }
    metadata |= {key if "." in key else f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    return Tokenizer.from_metadata(metadata)


def texts(tokenizer: Tokenizer, text: str, **how: bool) -> list[str]:
    return [tokenizer.token_text(index) for index in tokenizer.encode(text, **how)]


def by_definition(tokenizer: Tokenizer, text: str) -> list[int]:
    """Neighbours are merged, the best token first, the leftmost of equals; bytes of what is no token."""
    ids, symbols = tokenizer.vocabulary.ids, list(text)
    queue: list[tuple[int, int, int, str]] = []

    def offer(left: int, right: int) -> None:
        if left >= 0 and right < len(symbols) and (index := ids.get(symbols[left] + symbols[right])) is not None:
            heapq.heappush(queue, (index, left, right, symbols[left] + symbols[right]))

    def neighbour(place: int, step: int) -> int:
        place += step
        while 0 <= place < len(symbols) and not symbols[place]:
            place += step
        return place

    for place in range(len(symbols) - 1):
        offer(place, place + 1)
    while queue:
        _, left, right, merged = heapq.heappop(queue)
        if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != merged:
            continue
        symbols[left], symbols[right] = merged, ""
        offer(neighbour(left, -1), left)
        offer(left, neighbour(left, 1))
    known = [(s, ids.get(s)) for s in symbols if s]
    byte_ids = [[3 + byte for byte in s.encode()] if index is None else [index] for s, index in known]
    return [index for part in byte_ids for index in part]


def test_merges_by_score() -> None:
    tokenizer, rng = build(add_space_prefix=False), random.Random(1)
    for _ in range(3000):
        parts = [rng.choice([*WORDS, *LETTERS, "x", "的"]) for _ in range(rng.randint(1, 6))]
        text = "".join(parts) * rng.choice([1, 1, 3])
        assert tokenizer.encode(text.replace("▁", " ")) == by_definition(tokenizer, text), text


def test_spaces() -> None:
    tokenizer = build()
    assert tokenizer.vocab_type == 1
    assert texts(tokenizer, "the then") == ["▁the", "▁then"]
    assert texts(tokenizer, " the") == ["▁", "▁the"] and texts(tokenizer, "") == []
    assert texts(tokenizer, "in</s>in<s>  in") == ["▁", "in", "</s>", "▁", "in", "<s>", "▁▁", "▁", "in"]
    assert texts(build(add_space_prefix=False), "the then</s>then") == ["the", "▁then", "</s>", "the", "n"]
    assert tokenizer.decode(tokenizer.encode("the then")) == " the then"  # as llama-server shows it


def test_begin_and_end() -> None:
    tokenizer = build()
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos, tokenizer.add_eos) == (1, 2, True, False)
    assert texts(tokenizer, "the", add_special=True) == ["<s>", "▁the"]
    assert texts(tokenizer, "", add_special=True) == ["<s>"]
    assert texts(build(add_bos_token=False, add_eos_token=True), "the", add_special=True) == ["▁the", "</s>"]
    assert tokenizer.is_eog(2) and not tokenizer.is_eog(1)


def test_characters_that_are_no_tokens() -> None:
    tokenizer = build()
    ids = tokenizer.encode("a的\t")
    assert [tokenizer.token_text(index) for index in ids] == ["▁a", "<0xE7>", "<0x9A>", "<0x84>", "<0x09>"]
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.push(index) for index in ids] == [" a", "", "", "的", "\t"]
    without = build(tokens=["<unk>", "<s>", "</s>", "▁", "a"], token_type=[2, 3, 3, 1, 1], scores=[0.0] * 5)
    assert without.encode("ax") == [3, 4, 0]


def test_special_tokens() -> None:
    tokenizer = build([("<tool>", TokenKind.USER_DEFINED), ("<end_of_turn>", TokenKind.CONTROL)])
    assert texts(tokenizer, "a<tool>a", parse_special=False) == ["▁a", "<tool>", "▁a"]
    assert "</s>" not in texts(tokenizer, "a</s>", parse_special=False)
    assert tokenizer.is_eog(tokenizer.token_id("<end_of_turn>") or 0)


def test_phi_3_drops_blanks_behind_its_special_tokens() -> None:
    extra = [("<|end|>", TokenKind.CONTROL), ("<|user|>", TokenKind.CONTROL)]
    tokenizer = build(extra, **{"general.name": "Phi-3 mini"})
    assert texts(tokenizer, "<|user|> \n the<|end|>\n<s> the") == ["<|user|>", "▁the", "<|end|>", "<s>", "▁", "▁the"]
    assert texts(build(extra), "<|end|>\na") == ["<|end|>", "▁", "\n", "a"]


@given(st.data())
def test_any_ids_give_the_text_of_decode(data: st.DataObject) -> None:
    tokenizer = BUILT
    ids = data.draw(st.lists(st.integers(0, tokenizer.n_vocab - 1), max_size=40))
    for special in (False, True):
        detokenizer = Detokenizer(tokenizer, special)
        pieces = [*(detokenizer.push(index) for index in ids), detokenizer.finish()]
        assert "".join(pieces) == tokenizer.decode(ids, special=special)


@given(st.text())
def test_any_text_survives(text: str) -> None:
    kept = text.replace("▁", " ")  # the mark itself cannot be told from a space
    assert BUILT.decode(BUILT.encode(text, parse_special=False)) == (" " + kept if text else "")


BUILT = build()


@pytest.mark.parametrize("run", ["\n", "\n\n", "\n\n\n", "\n\n\n\n\n"])
def test_runs_of_line_breaks_stay_whole(run: str) -> None:
    """gemma4: byte-pair encoding over characters, where lines are encoded one by one."""
    tokens = ["<pad>", "<eos>", "<bos>", "▁", "a", "▁a", "\n", "\n\n", "\n\n\n", *(text for text, _ in BYTES)]
    tokenizer = Tokenizer.from_metadata({
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3, *[1] * 6, *[6] * 256],
        "tokenizer.ggml.merges": ["▁ a", "\n \n"],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    })  # fmt: skip
    got = texts(tokenizer, f"a{run} aé", add_special=True)
    whole = [run] if len(run) < 4 else ["\n\n", "\n\n", "\n"]
    assert got == ["<bos>", "a", *whole, "▁a", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode(f"a{run} aé")) == f"a{run} aé" and tokenizer.vocab_type == 2
