"""JSON in and out: strict parsing with a position in the error, compact UTF-8 output."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from flask import Response, request

from pyjet.server.errors import ApiError

CONTENT_TYPE = "application/json; charset=utf-8"

_EMPTY = (
    "attempting to parse an empty input; check that your input string or stream contains the expected JSON"
)  # the peer's text, which its clients know
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(NaN|-?Infinity)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_LONG_INTEGER = 19  # digits from which an integer may not fit into 64 bits
_AS_DIGITS = bytes(0x30 if byte in b"0123456789" else 0x20 for byte in range(256))  # all digits are "0"


class _Constant(ValueError):
    """NaN or Infinity, which JSON does not have."""


def parse(body: bytes) -> Any:
    """Parse a request body. Raises ApiError(400) with line and column for anything that is not JSON.

    Rejected beyond syntax errors: invalid UTF-8, lone surrogates, NaN, Infinity and numbers that overflow.
    """
    text = _decode(body)
    if not text.strip(" \t\r\n"):
        raise _parse_error(text, len(text) if text else 0, _EMPTY)
    try:
        value = (_DECODER if _has_long_integer(body) else _QUICK_DECODER).decode(text)
    except json.JSONDecodeError as error:
        raise _parse_error(text, error.pos, f"syntax error while parsing value - {error.msg}") from None
    except _Constant as error:
        raise _parse_error(text, _constant_position(text), f"invalid literal '{error}'") from None
    except RecursionError:
        raise _parse_error(text, 0, "the value is nested too deeply") from None
    if _SURROGATE.search(text):
        _check_surrogates(text)
    return value


def request_value() -> Any:
    """The body of the current request as JSON, whatever its Content-Type; form fields become an object."""
    if request.mimetype == "multipart/form-data":
        return dict(request.form.items())
    return parse(request.get_data(cache=False))


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8. Numbers that JSON cannot express become null, broken text gets U+FFFD."""
    try:
        text = _ENCODER.encode(value)
    except ValueError:
        text = _ENCODER.encode(_finite(value))
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def response(value: Any, status: int = 200) -> Response:
    """A JSON response."""
    return Response(dump(value), status, content_type=CONTENT_TYPE)


def error_response(error: ApiError) -> Response:
    """The response for an ApiError."""
    return response(error.body(), error.status)


# internal


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ApiError(400, f"[json.exception.out_of_range.406] number overflow parsing '{text[:60]}'")
    return value


def _parse_int(text: str) -> int | float:
    if len(text) < _LONG_INTEGER:
        return int(text)
    if len(text) > 400:  # beyond any double, and slow to convert
        raise ApiError(400, f"[json.exception.out_of_range.406] number overflow parsing '{text[:60]}'")
    value = int(text)
    return value if -(2**63) <= value < 2**64 else _parse_float(text)


def _parse_constant(name: str) -> Any:
    raise _Constant(name)


def _has_long_integer(body: bytes) -> bool:
    """Whether there are so many digits in a row, in a number or elsewhere."""
    return b"0" * _LONG_INTEGER in body.translate(_AS_DIGITS)


_DECODER = json.JSONDecoder(parse_float=_parse_float, parse_int=_parse_int, parse_constant=_parse_constant)
# Without a function of ours for each integer: a prompt may be tens of thousands of token ids.
_QUICK_DECODER = json.JSONDecoder(parse_float=_parse_float, parse_constant=_parse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _decode(body: bytes) -> str:
    try:
        return body.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start].decode("utf-8", "replace")
        byte = body[error.start]
        reason = f"syntax error while parsing value - invalid string: ill-formed UTF-8 byte; last read: 0x{byte:02X}"
        raise _parse_error(before, len(before), reason) from None


def _parse_error(text: str, position: int, reason: str) -> ApiError:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    prefix = f"[json.exception.parse_error.101] parse error at line {line}, column {column}: "
    return ApiError(400, prefix + reason)


def _constant_position(text: str) -> int:
    return next((match.start() for match in _STRING_OR_CONSTANT.finditer(text) if match[1]), 0)


def _check_surrogates(text: str) -> None:
    """Every ``\\uD8xx`` must be followed by its ``\\uDCxx``."""
    expected_at = -1
    for match in _ESCAPE.finditer(text):
        code = int(match[1], 16) if match[1] else 0
        if expected_at >= 0 and (match.start() != expected_at or not 0xDC00 <= code < 0xE000):
            raise _surrogate_error(text, expected_at - 6)
        if expected_at < 0 and 0xDC00 <= code < 0xE000:
            raise _surrogate_error(text, match.start())
        expected_at = match.end() if 0xD800 <= code < 0xDC00 else -1
    if expected_at >= 0:
        raise _surrogate_error(text, expected_at - 6)


def _surrogate_error(text: str, position: int) -> ApiError:
    reason = "syntax error while parsing value - invalid string: surrogates U+D800..U+DFFF must come in pairs"
    return _parse_error(text, position, reason)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
