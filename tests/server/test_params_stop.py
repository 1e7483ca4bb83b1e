"""Stop strings, UTF-8 and indentation on the way from tokens to text."""

from __future__ import annotations

from typing import Any

import pytest

from pyjet.engine.request import FinishedEvent, GenerationRequest, Timings, TokenEvent
from pyjet.server.choice import Choice, Result
from pyjet.server.options import ServerOptions
from pyjet.server.params import parse_params
from pyjet.server.stop_strings import StopStrings
from tests.server.scripted import eos, ids, tiny_tokenizer


def run(tokens: list[int], body: dict[str, Any], reason: Any = "limit") -> tuple[list[str], Result]:
    """Chunk texts (None for held tokens) and the result of a text made of ``tokens``."""
    params = parse_params(body, ServerOptions(), tiny_tokenizer(), n_slots=4)
    request = GenerationRequest("r", (1, 2, 3), stop_ids=tiny_tokenizer().eog_ids)
    choice = Choice(0, request, params, tiny_tokenizer(), special=False)
    texts = []
    for n, token in enumerate(tokens, 1):
        chunk = choice.add(TokenEvent("r", token, None, Timings(0, 3, 1.0, n, 10.0 * (n - 1))))
        if not chunk.incomplete:
            texts.append(chunk.text)
        if choice.stopped:
            break
    rest, result = choice.finish(FinishedEvent("r", reason, 0, Timings(0, 3, 1.0, len(tokens), 1.0)))
    return texts + ([rest.text] if rest else []), result


def letters(text: str) -> list[int]:
    """One token per byte, so that every border is a token border."""
    by_piece = {tiny_tokenizer().token_bytes(i): i for i in range(256)}
    return [by_piece[bytes([byte])] for byte in text.encode()]


def test_earliest_match_wins_then_list_order() -> None:
    stops = StopStrings(["bc", "ab", "abc", ""])
    assert stops.find("xxabc") == (2, "ab")
    assert stops.find("xx") is None
    assert stops.may_begin("xa") and not stops.may_begin("xc")


@pytest.mark.parametrize("text", ["one STOP two", "STOP", "one STSTOP", "oneSTOP"])
def test_text_after_a_stop_string_never_leaks(text: str) -> None:
    texts, result = run(letters(text), {"stop": ["STOP"]})
    assert "".join(texts) == result.content == text[: text.index("STOP")]
    assert (result.stop_type, result.stopping_word) == ("word", "STOP")


def test_held_text_is_sent_when_the_match_fails() -> None:
    texts, result = run(letters("a STORM"), {"stop": ["STOP"]})
    assert texts == ["a", " ", "", "", "", "STOR", "M"]
    assert result.content == "a STORM"


def test_held_text_is_sent_at_the_end() -> None:
    texts, result = run([*letters("a STO"), eos()], {"stop": ["STOP"]}, "eos")
    assert texts[-1] == "STO" and result.content == "a STO" and result.stop_type == "eos"
    texts, result = run(letters("a STO"), {"stop": ["STOP"]})
    assert texts[-1] == "STO" and result.content == "a STO" and result.stop_type == "limit"


def test_a_character_is_never_split() -> None:
    texts, result = run(letters("a你🙂b"), {})
    assert texts == ["a", "你", "🙂", "b"]
    assert result.n_decoded == len("a你🙂b".encode())


@pytest.mark.parametrize("n_bytes", range(1, 8))
def test_an_incomplete_character_at_the_limit_is_the_tail(n_bytes: int) -> None:
    raw = "你🙂".encode()[:n_bytes]
    texts, result = run(letters("你🙂")[:n_bytes], {})
    whole = raw.decode("utf-8", "ignore")
    assert "".join(texts) == result.content == whole
    assert result.tail == ("" if whole.encode() == raw else "�")


def test_stop_string_inside_one_token_with_more_text() -> None:
    token = ids(" the")
    texts, result = run(token, {"stop": ["t"]})
    assert texts == [" "] and result.content == " "


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("def f():\n    a\n    b\nc = 1", "def f():\n    a\n    b\n"),
        ("    a\n  b", "    a\n  "),
        ("    a\n\n    b", "    a\n"),
        ("x\n        y", "x\n        y"),
    ],
)
def test_indentation_ends_the_text(text: str, content: str) -> None:
    for tokens in (letters(text), ids(text)):
        texts, result = run(tokens, {"n_indent": 4})
        assert "".join(texts) == result.content == content
        assert result.stop_type == "limit"


def test_time_limit_is_looked_at_at_newlines() -> None:
    _, result = run(letters("aaaaaa\nbb\ncc"), {"t_max_predict_ms": 65})
    assert result.content == "aaaaaa\nbb\n" and result.stop_type == "limit"
    _, result = run(letters("aaaaaaaaaaaa"), {"t_max_predict_ms": 5})
    assert result.content == "aaaaaaaaaaaa"
