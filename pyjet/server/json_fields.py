"""Reading typed fields of a request body the way llama-server does.

``null`` means absent, the first alias that is present wins, an integer field takes ``1.7`` (cut to 1), a boolean
counts as a number, and every error names the field it is about.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pyjet.server.errors import ApiError, json_type_name, type_error

T = TypeVar("T")
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
FLOAT32_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def float32(value: float) -> float:
    """``value`` rounded to single precision, the precision of llama-server's parameters."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def present(body: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The first of ``names`` that has a value in ``body``."""
    for name in names:
        if body.get(name) is not None:
            return name
    return None


def number(body: Mapping[str, Any], name: str) -> int | float:
    """A JSON number or boolean; 400 for another type or a number too large for a double."""
    value = body[name]
    if not isinstance(value, (int, float)):
        raise type_error("number", value, name)
    if isinstance(value, float) and not math.isfinite(value):
        raise ApiError(400, f"Field '{name}': [json.exception.out_of_range.406] number overflow parsing '{value}'")
    return value


def read_int(
    body: Mapping[str, Any], names: Sequence[str], default: int, low: int, high: int, *, hard: bool = False
) -> int:
    """An integer within ``low``…``high``; outside: 400 if ``hard``, else the nearest limit."""
    name = present(body, names)
    if name is None:
        return default
    value = int(number(body, name))
    if hard and not low <= value <= high:
        raise ApiError(400, f"Field '{name}': Value must be between {low} <= value <= {high}, but got {value}")
    return max(low, min(high, value))


def read_float(
    body: Mapping[str, Any], names: Sequence[str], default: float, low: float, high: float, *, hard: bool = False
) -> float:
    """A number in single precision; limits as in :func:`read_int`."""
    name = present(body, names)
    if name is None:
        return float32(default)
    raw = number(body, name)
    value = float32(min(max(raw, -FLOAT32_MAX), FLOAT32_MAX))
    if hard and not float32(low) <= value <= float32(high):
        raise ApiError(400, f"Field '{name}': Value must be between {low:f} <= value <= {high:f}, but got {value:f}")
    return max(float32(low), min(float32(high), value))


def read_bool(body: Mapping[str, Any], name: str, default: bool) -> bool:
    """A JSON boolean, nothing else."""
    return _read(body, name, default, bool, "boolean")


def read_str(body: Mapping[str, Any], name: str, default: str) -> str:
    """A JSON string, nothing else."""
    return _read(body, name, default, str, "string")


def _read(body: Mapping[str, Any], name: str, default: T, kind: type[T], json_name: str) -> T:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise type_error(json_name, value, name)
    return value


def read_strings(name: str, values: Any) -> list[str]:
    """``values`` as a list of strings; 400 for anything else."""
    if not isinstance(values, list):
        raise type_error("array", values, name)
    for value in values:
        if not isinstance(value, str):
            raise type_error("string", value, name)
    return list(values)


def lenient_int(value: Any, default: int) -> int:
    """For fields where a wrong type means the default."""
    if isinstance(value, float) and not math.isfinite(value):
        return default
    return int(value) if isinstance(value, (int, float)) else default


def object_body(body: Any) -> dict[str, Any]:
    """The body as an object; 400 with the peer's library text otherwise."""
    if not isinstance(body, dict):
        raise ApiError(400, f"[json.exception.type_error.304] cannot use at() with {json_type_name(body)}")
    return body
