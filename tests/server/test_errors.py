"""The shape and the texts of errors; JSON in and out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.server import errors, jsonio
from pyjet.server.errors import ApiError


@pytest.mark.parametrize(
    ("error", "body"),
    [
        (errors.not_found(), {"code": 404, "message": "File Not Found", "type": "not_found_error"}),
        (errors.invalid_api_key(), {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}),
        (errors.loading_model(), {"code": 503, "message": "Loading model", "type": "unavailable_error"}),
        (errors.no_slot_available(), {"code": 503, "message": "no slot available", "type": "unavailable_error"}),
        (errors.feature_disabled(), {"message": "this feature is disabled", "type": "feature_disabled"}),
        (errors.server_error("x"), {"code": 500, "message": "x", "type": "server_error"}),
        (
            errors.exceeds_context(901, 512),
            {
                "code": 400,
                "message": "request (901 tokens) exceeds the available context size (512 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 901,
                "n_ctx": 512,
            },
        ),
        (
            errors.key_not_found("prompt"),
            {
                "code": 400,
                "message": "[json.exception.out_of_range.403] key 'prompt' not found",
                "type": "invalid_request_error",
            },
        ),
        (
            errors.type_error("number", "x", "n_predict"),
            {
                "code": 400,
                "message": "Field 'n_predict': [json.exception.type_error.302] type must be number, but is string",
                "type": "invalid_request_error",
            },
        ),
        (
            errors.endpoint_disabled("metrics endpoint", "--metrics"),
            {
                "code": 501,
                "message": "This server does not support metrics endpoint. Start it with `--metrics`",
                "type": "not_supported_error",
            },
        ),
    ],
    ids=lambda item: item.message if isinstance(item, ApiError) else "",
)
def test_shapes(error: ApiError, body: dict[str, Any]) -> None:
    assert error.body() == {"error": body}


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "null"), (True, "boolean"), (1, "number"), (1.5, "number"), ("", "string"), ([], "array"), ({}, "object")],
)
def test_json_type_names(value: Any, name: str) -> None:
    assert errors.json_type_name(value) == name


# JSON

NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_round_trip(value: Any) -> None:
    assert jsonio.parse(jsonio.dump(value)) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_a_400(body: bytes) -> None:
    try:
        jsonio.parse(body)
    except ApiError as error:
        assert error.status == 400


@given(JSON_VALUES, st.data())
def test_damaged_json_is_json_or_a_400(value: Any, data: st.DataObject) -> None:
    body = bytearray(json.dumps(value).encode())
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    test_any_bytes_are_json_or_a_400.hypothesis.inner_test(bytes(body))  # type: ignore[attr-defined]


def test_output_is_compact_raw_utf_8() -> None:
    assert jsonio.dump({"a": [1, 0.0, "é\n\"\\"]}) == '{"a":[1,0.0,"é\\n\\"\\\\"]}'.encode()


def test_numbers_and_text_that_json_cannot_express() -> None:
    assert jsonio.dump([math.inf, -math.inf, math.nan, (1.5,), {"a": math.inf}]) == b'[null,null,null,[1.5],{"a":null}]'
    assert jsonio.dump("a\ud800b") == '"a\ufffdb"'.encode()


@pytest.mark.parametrize(
    "text", [r'"\ud83d\ude00"', r'"\\ud800"', r'["\u00e9","\uD83D\uDE00x"]', r'"\\\ud83d\ude00"']
)
def test_good_escapes(text: str) -> None:
    assert jsonio.parse(text.encode()) == json.loads(text)


def test_byte_order_mark_is_skipped() -> None:
    assert jsonio.parse(b"\xef\xbb\xbf{}") == {}


def test_large_integers_become_floats() -> None:
    assert jsonio.parse(b"[18446744073709551615,18446744073709551616,-9223372036854775809]") == [
        2**64 - 1,
        float(2**64),
        float(-(2**63) - 1),
    ]
