"""Conversions from the text of an option to its value. Each raises ValueError with a reason for people."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyjet.grammar.check import check_lark
from pyjet.grammar.gbnf_lark import grammar_to_lark
from pyjet.grammar.json_schema import json_rule
from pyjet.server.sampler_names import is_repeat_penalty

TRUE_WORDS = frozenset({"on", "enabled", "true", "1"})
FALSE_WORDS = frozenset({"off", "disabled", "false", "0"})

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

_LEADING_INT = re.compile(r"[ \t\n\v\f\r]*[+-]?[0-9]+")
_LEADING_FLOAT = re.compile(r"[ \t\n\v\f\r]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def to_bool(text: str) -> bool:
    """The words that switch things on and off in environment variables and ``on|off`` options."""
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise ValueError(f'unknown value "{text}", expected one of: on, off, true, false, enabled, disabled, 1, 0')


def to_int(text: str) -> int:
    """Integer by the rules of C's ``stoi``: leading digits are enough, 32 bits signed."""
    match = _LEADING_INT.match(text)
    if match is None:
        raise ValueError(f'expected an integer, got "{text}"')
    # a longer run of digits is out of range, and Python refuses to convert very long ones
    digits = match.group()
    value = int(digits) if len(digits) < 40 else 2**31
    if not -(2**31) <= value < 2**31:
        raise ValueError(f'integer "{text[:40]}" is out of range')
    return value


def int_in(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """Integer within limits, both included."""

    def convert(text: str) -> int:
        value = to_int(text)
        if not low <= value <= high:
            upper = f" and {high}" if high < 2**31 - 1 else ""
            raise ValueError(f"invalid value {value}, expected {'between ' if upper else 'at least '}{low}{upper}")
        return value

    return convert


def to_float(text: str) -> float:
    """Finite number by the rules of C's ``stof``: a leading number is enough."""
    match = _LEADING_FLOAT.match(text)
    if match is None:
        raise ValueError(f'expected a number, got "{text}"')
    value = float(match.group())
    if not math.isfinite(value):
        raise ValueError(f'number "{text}" is out of range')
    return value


def float_in(low: float, high: float) -> Callable[[str], float]:
    """Number within limits, both included."""

    def convert(text: str) -> float:
        value = to_float(text)
        if not low <= value <= high:
            raise ValueError(f"invalid value {value:g}, expected between {low:g} and {high:g}")
        return value

    return convert


def float_above(low: float) -> Callable[[str], float]:
    """Number larger than ``low``."""

    def convert(text: str) -> float:
        value = to_float(text)
        if not value > low:
            raise ValueError(f"invalid value {value:g}, expected more than {low:g}")
        return value

    return convert


def one_of(*words: str) -> Callable[[str], str]:
    """One word of a list, case sensitive."""

    def convert(text: str) -> str:
        if text not in words:
            raise ValueError(f'unknown value "{text}", expected one of: {", ".join(words)}')
        return text

    return convert


def on_off_auto(text: str) -> str:
    """``on``, ``off`` or ``auto``; the boolean words stand for the first two."""
    if text in ("auto", "-1"):
        return "auto"
    try:
        return "on" if to_bool(text) else "off"
    except ValueError:
        raise ValueError(f'unknown value "{text}", expected on, off or auto') from None


def comma_list(text: str) -> list[str]:
    """Items between commas; empty ones are dropped. Double quotes protect commas, as in CSV."""
    items, current, quoted = [], "", False
    for char in text:
        if char == '"':
            quoted = not quoted
        elif char == "," and not quoted:
            items.append(current)
            current = ""
        else:
            current += char
    items.append(current)
    return [item.strip() for item in items if item.strip()]


def float_list(text: str) -> list[float]:
    """Numbers between commas or slashes."""
    return [to_float(item) for item in re.split(r"[,/]+", text) if item.strip()]


def int_list(text: str) -> list[int]:
    """Integers between commas or slashes."""
    return [to_int(item) for item in re.split(r"[,/]+", text) if item.strip()]


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def file_text(path: str) -> str:
    """Content of a text file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"failed to open file '{path}': {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"file '{path}' is not UTF-8 text") from None


def grammar(text: str) -> str:
    """A grammar in GBNF that can be used; nothing is none."""
    if text:
        check_lark(grammar_to_lark(text))
    return text


def grammar_file(path: str) -> str:
    """A grammar in a file."""
    return grammar(file_text(path))


def json_schema(text: str) -> str:
    """A JSON schema that can be used, as text."""
    if not text:
        return text
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ValueError(f"invalid JSON: {error}") from None
    check_lark(f"start: {json_rule(schema)}")
    return text


def json_schema_file(path: str) -> str:
    """A JSON schema in a file."""
    return json_schema(file_text(path))


def json_object_file(path: str) -> dict[str, Any]:
    """A JSON object in a file."""
    return json_object(file_text(path))


def key_file(path: str) -> list[str]:
    """API keys of a file: one per line, comment lines start with ``#``."""
    lines = (line.strip() for line in file_text(path).splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def existing_directory(path: str) -> str:
    """A directory; the result ends with a separator."""
    if not os.path.isdir(path):
        raise ValueError(f"not a directory: {path}")
    return path if path.endswith(os.sep) else path + os.sep


def gpu_layers(text: str) -> str:
    """``auto``, ``all`` or a count of layers (kept as text); -1 is ``auto``, below that ``all``."""
    if text in ("auto", "all"):
        return text
    count = to_int(text)
    return str(count) if count >= 0 else ("auto" if count == -1 else "all")


def api_prefix(text: str) -> str:
    """Path prefix without a trailing slash."""
    prefix = text.rstrip("/")
    if prefix and not prefix.startswith("/"):
        raise ValueError(f'a prefix starts with "/", got "{text}"')
    return prefix


def seed(text: str) -> int:
    """Seed as an unsigned 32-bit number; -1 becomes 4294967295, which means random."""
    match = _LEADING_INT.match(text)
    if match is None or len(match.group()) > 20:
        raise ValueError(f'expected an integer, got "{text}"')
    return int(match.group()) & 0xFFFFFFFF


def repeat_penalty(text: str) -> float:
    """A factor for logits."""
    value = to_float(text)
    if not is_repeat_penalty(value):
        raise ValueError(f"invalid value {value:g}, expected more than 0")
    return value


def logit_bias(text: str) -> tuple[int, float]:
    """``TOKEN_ID(+/-)BIAS``, for example ``15043-1.5``."""
    match = re.fullmatch(r"\s*(\d{1,10})\s*([+-])\s*(inf|[0-9.eE+-]+)\s*", text)
    if match is None:
        raise ValueError(f'expected TOKEN_ID+BIAS or TOKEN_ID-BIAS, got "{text}"')
    bias = math.inf if match[3] == "inf" else to_float(match[3])
    return int(match[1]), bias if match[2] == "+" else -bias


def override_kv(text: str) -> dict[str, Any]:
    """Metadata overrides ``KEY=TYPE:VALUE,...`` with the types int, float, bool and str."""
    overrides: dict[str, Any] = {}
    for item in comma_list(text):
        match = re.fullmatch(r"([^=]{1,127})=(int|float|bool|str):(.*)", item, re.DOTALL)
        if match is None:
            raise ValueError(f'malformed override "{item}", expected KEY=TYPE:VALUE with int, float, bool or str')
        key, kind, value = match.groups()
        if kind == "bool" and value not in ("true", "false"):
            raise ValueError(f'override of "{key}": a bool is true or false, got "{value}"')
        converters: dict[str, Callable[[str], Any]] = {
            "int": to_int,
            "float": to_float,
            "bool": lambda word: word == "true",
            "str": str,
        }
        overrides[key] = converters[kind](value)
    return overrides


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([nrt'\"\\]))")


def unescape(text: str) -> str:
    r"""Replace ``\n``, ``\r``, ``\t``, ``\'``, ``\"``, ``\\`` and ``\xHH``; anything else stays as it is."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES[m[2]], text)
