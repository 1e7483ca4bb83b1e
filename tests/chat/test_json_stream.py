"""Forgiving JSON: what comes out is valid, compact, and the same however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.chat.json_stream import JsonStream, repair_object


def read(text: str, size: int) -> str:
    stream = JsonStream()
    out = ""
    for start in range(0, len(text), size):
        stream.feed(text[start:start + size])
        out += stream.take()
    return out + stream.close()


@pytest.mark.parametrize(("text", "expected"), [
    ('{ "a" : 1, "b": [true, null, -3.5e-7, {"c": "x\\n\\u00e9"}] }',
     '{"a":1,"b":[true,null,-3.5e-7,{"c":"x\\n\\u00e9"}]}'),
    ("{'a': 'it\\'s \"q\"', \"b\": True, 'n': None,}", '{"a":"it\'s \\"q\\"","b":true,"n":null}'),
    ('{"a": "un', '{"a":"un"}'),
    ('{"a": "un\\', '{"a":"un"}'),
    ('{"a": "un\\u12', '{"a":"un"}'),
    ('{"a"', "{}"),
    ('{"a": 1, "b": ', '{"a":1}'),
    ('{"a": 1 "b": 2}', '{"a":1}'),
    ('{"a": 1, "b": }', '{"a":1}'),
    ("{a: 1}", "{}"),
    ("[1, 2", "[1,2]"),
    ("[1,,2]", "[1]"),
    ('{"a": abc, "b": NaN, "c": 01}', '{"a":"abc","b":"NaN","c":"01"}'),
    ("-", '"-"'),
    ('"\\ud83d\\ude00 \\ud83d x \\ude00"', '"\\ud83d\\ude00 \\ufffd x \\ufffd"'),
    ('"\\x41\\u12g4"', '"\\\\x41\\\\u12g4"'),
    ('"a\nb\tc"', '"a\\nb\\tc"'),
    ("", "null"),
    ("]", "null"),
])
def test_forgiven(text: str, expected: str) -> None:
    assert {read(text, size) for size in (1, 2, 5, 1000)} == {expected}
    json.loads(expected)


def test_depth_is_limited() -> None:
    json.loads(read("[" * 5000, 7))


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(JSON, st.integers(1, 9), st.booleans())
def test_valid_json_is_kept(value: Any, size: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    if not _has_surrogates(text):
        assert json.loads(read(text, size)) == value


def _has_surrogates(text: str) -> bool:
    return any(0xD800 <= ord(char) < 0xE000 for char in text) or "\\ud" in text


@given(st.text(alphabet="{}[]\"'\\,:u0d8a1-.eEtrufalsn \n", max_size=40), st.integers(1, 9))
def test_anything_gives_valid_json(text: str, size: int) -> None:
    out = read(text, size)
    json.loads(out)
    assert out == read(text, 1000)


@given(JSON.filter(lambda value: isinstance(value, dict)), st.integers(0, 200))
def test_cut_object_is_repaired(value: dict[str, Any], cut: int) -> None:
    assert isinstance(repair_object(json.dumps(value)[:cut]), dict)
