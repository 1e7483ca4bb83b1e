"""What was encoded before gives the same tokens again, without being encoded again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.model import Tokenizer
from pyjet.model.piece_cache import ENTRY_BYTES, PieceCache
from pyjet.model.vocabulary import TokenKind
from tests.model import test_sentence_pieces, test_tokenizer

MARKS = [("<|a|>", TokenKind.CONTROL), ("<u>", TokenKind.USER_DEFINED), ("<u>x", TokenKind.USER_DEFINED)]
KINDS = {
    "byte-level": lambda: test_tokenizer.build(MARKS, eos_token_id=256, add_eos_token=True),
    "sentence pieces": lambda: test_sentence_pieces.build(MARKS),
    "no space in front": lambda: test_sentence_pieces.build(MARKS, add_space_prefix=False),
    "strips": lambda: test_sentence_pieces.build(MARKS, **{"general.name": "Phi-3"}),
    "marked spaces": lambda: test_sentence_pieces.build(
        [*MARKS, ("\n\n", TokenKind.NORMAL)], model="gemma4", merges=["a b", "ab a"]
    ),
}
PIECES = ["<|a|>", "<u>", "<u>x", "<", "|a|>", "</s>", " ", "\n", "\n\n", "the", " then", "aba", "é", "的", "\ud800"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def forgetful(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer._pieces = PieceCache(0)
    return tokenizer


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest) -> tuple[Tokenizer, Tokenizer]:
    """One that remembers all examples, and one that remembers nothing."""
    return KINDS[request.param](), forgetful(KINDS[request.param]())


@given(st.lists(st.tuples(TEXTS, st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_the_same_tokens(both: tuple[Tokenizer, Tokenizer], calls: list[tuple[str, bool, bool]]) -> None:
    remembers, plain = both
    conversation = ""
    for text, add_special, parse_special in calls:
        conversation += text
        for each in (text, conversation):
            how = {"add_special": add_special, "parse_special": parse_special}
            assert remembers.encode(each, **how) == plain.encode(each, **how)


class Counting:
    """A backend that notes what it is given."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.words: list[str] = []

    def encode_batch_fast(self, words: Sequence[str], **how: Any) -> Any:
        self.words += words
        return self._backend.encode_batch_fast(words, **how)


def test_of_a_conversation_only_new_messages_are_encoded() -> None:
    tokenizer = KINDS["byte-level"]()
    backend = Counting(tokenizer._coding.backend)
    tokenizer._coding = replace(tokenizer._coding, backend=backend)
    chat = "".join(f"<|a|>message {i}" for i in range(20))
    first = tokenizer.encode(chat)
    backend.words.clear()
    again = tokenizer.encode(chat + "<|a|>one more")
    assert backend.words == ["one more"]
    assert again[: len(first) - 1] == first[:-1]  # the last one ends the text


def test_the_least_recently_used_are_forgotten() -> None:
    size = ENTRY_BYTES + 4 * 1 + 4 * 2
    cache = PieceCache(3 * size)
    for piece in "abc":
        cache.put(piece, [1, ord(piece)])
    assert list(cache.get("a") or ()) == [1, ord("a")]
    cache.put("d", [1, ord("d")])
    assert cache.get("b") is None
    assert all(list(cache.get(piece) or ()) == [1, ord(piece)] for piece in "acd")
    assert cache.n_bytes == 3 * size
    cache.put("e" * 1000, [1])
    assert cache.get("e" * 1000) is None and cache.n_bytes == 3 * size


def test_threads_share_a_small_cache() -> None:
    tokenizer, plain = KINDS["byte-level"](), forgetful(KINDS["byte-level"]())
    tokenizer._pieces = PieceCache(10 * ENTRY_BYTES)
    texts = [f"<|a|>{i % 23}<|a|>{i % 7}" for i in range(200)]
    expected = [plain.encode(text) for text in texts]
    wrong: list[str] = []

    def work() -> None:
        wrong.extend(text for text, ids in zip(texts, expected) if tokenizer.encode(text) != ids)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and tokenizer._pieces.n_bytes <= 10 * ENTRY_BYTES
