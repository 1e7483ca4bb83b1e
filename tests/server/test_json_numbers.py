"""Numbers of request bodies: the quick way for token ids reads them as the careful one does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjet.server import jsonio
from pyjet.server.errors import ApiError
from pyjet.server.prompts import message_starts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[0, -1, 248319]", [0, -1, 248319]),
        ("999999999999999999", 10**18 - 1),
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ("-9223372036854775809", -float(2**63)),
        ("[1, 123456789012345678901]", [1, 123456789012345678901.0]),
        ('["12345678901234567890123", 7]', ["12345678901234567890123", 7]),
        ("0.1234567890123456789012", 0.1234567890123456789012),
        ("[1.5, 1e3]", [1.5, 1000.0]),
    ],
)
def test_numbers(text: str, value: Any) -> None:
    parsed = jsonio.parse(text.encode())
    assert parsed == value and json.dumps(parsed) == json.dumps(value)


@pytest.mark.parametrize("text", ["1e999", "[1, -1e999]", "9" * 401])
def test_numbers_that_overflow(text: str) -> None:
    with pytest.raises(ApiError, match="number overflow"):
        jsonio.parse(text.encode())


@pytest.mark.parametrize("text", ["[NaN]", "-Infinity"])
def test_constants_that_json_does_not_have(text: str) -> None:
    with pytest.raises(ApiError, match="invalid literal"):
        jsonio.parse(text.encode())


def test_message_starts() -> None:
    assert message_starts([7, 1, 7, 7, 2, 7], 7) == (0, 2, 3, 5)
    assert message_starts((1, 2), 7) == message_starts([], 7) == message_starts([7], None) == ()
