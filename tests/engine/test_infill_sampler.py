"""The infill sampler on a vocabulary of a few texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.candidates import Candidates
from pyjet.engine.request import InfillTokens
from pyjet.engine.samplers.infill import infill
from pyjet.server.infill_tokens import infill_tokens, last_beginning_with
from tests.server.scripted import ids, tiny_tokenizer

TEXTS = [b"a", b"ab", b"abc", b"b", b"bc", b"", b"<end>", b"<stop>", b"xyz"]
END, STOP = 6, 7


def tokens() -> InfillTokens:
    order = sorted(set(TEXTS))
    rank = np.array([order.index(text) for text in TEXTS], np.int32)
    last = np.array(last_beginning_with(order), np.int32)[rank]
    last[[not text for text in TEXTS]] = -1
    is_end = np.isin(np.arange(len(TEXTS)), [END, STOP])
    return InfillTokens(rank, last, is_end, END)


def left_of(probs: dict[bytes, float]) -> list[bytes]:
    logits = np.array([np.log(probs[text]) if text in probs else -np.inf for text in TEXTS], np.float32)
    candidates = Candidates(logits)
    candidates.keep(candidates.best(len(probs)), is_sorted=True)
    infill(candidates, tokens())
    return [TEXTS[candidates.token(i)] for i in range(len(candidates))]


@pytest.mark.parametrize(
    ("probs", "left"),
    [
        ({b"a": 0.5, b"b": 0.3, b"<end>": 0.2}, [b"<end>"]),  # likely for three candidates
        ({b"a": 0.88, b"<end>": 0.07, b"<stop>": 0.05}, [b"<end>", b"<stop>"]),
        ({b"a": 0.55, b"b": 0.44, b"<end>": 0.01}, [b"a", b"b", b"<end>"]),
        ({b"a": 0.68, b"b": 0.31, b"<end>": 0.01}, [b"a", b"<end>"]),  # of two texts each needs a third
        ({b"a": 0.4, b"ab": 0.3, b"b": 0.3}, [b"a"]),  # 0.7 for a
        ({b"ab": 0.4, b"abc": 0.1, b"b": 0.3, b"a": 0.2}, [b"ab"]),  # the likelier of the two stands for both
        ({b"a": 0.18, b"b": 0.17, b"xyz": 0.16}, [b"a", b"b", b"xyz"]),  # a third each once alone
        ({b"": 0.6, b"a": 0.4}, [b"", b"a"]),  # nothing begins with no text
    ],
)
def test_what_is_left(probs: dict[bytes, float], left: list[bytes]) -> None:
    assert left_of(probs) == left


def test_many_unlikely_texts_are_the_end() -> None:
    n = 12
    rank, last = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)
    candidates = Candidates(np.zeros(n, np.float32))
    infill(candidates, InfillTokens(rank, last, np.zeros(n, bool), 3))
    assert len(candidates) == 1 and candidates.token(0) == 3


@given(st.lists(st.text("ab", max_size=5), max_size=20))
def test_ranges_of_beginnings(texts: list[str]) -> None:
    order = sorted({text.encode() for text in texts})
    for i, last in enumerate(last_beginning_with(order)):
        assert [j for j, text in enumerate(order) if text.startswith(order[i])] == list(range(i, last + 1))


def test_the_vocabulary_of_a_model() -> None:
    tokenizer = tiny_tokenizer()
    table = infill_tokens(tokenizer)
    assert table is not None
    assert set(np.flatnonzero(table.is_end).tolist()) == tokenizer.eog_ids and table.end in tokenizer.eog_ids
    (token,) = ids(" the")[:1]
    beginning = np.flatnonzero((table.rank >= table.rank[token]) & (table.rank <= table.last[token])).tolist()
    pieces = [b"" if tokenizer.is_special(i) else tokenizer.token_bytes(i) for i in range(tokenizer.n_vocab)]
    assert beginning == [i for i, piece in enumerate(pieces) if piece.startswith(pieces[token])]
    assert all(table.last[i] == -1 for i in tokenizer.eog_ids)
