"""Where things are in a GGUF file's bytes, to damage them on purpose."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_STRING, _ARRAY = 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
N_TENSORS_AT, N_KEYS_AT, FIRST_KEY_AT = 8, 16, 24


@dataclass(frozen=True)
class KeySpot:
    """Byte offsets of one metadata entry; count_at is None unless the value is an array."""

    key: str
    key_length_at: int
    type_at: int
    value_at: int
    count_at: int | None


@dataclass(frozen=True)
class TensorSpot:
    """Byte offsets of one row of the tensor table."""

    name: str
    name_length_at: int
    n_dims_at: int
    shape_at: int
    type_at: int
    offset_at: int


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _u64(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])


def find_spots(data: bytes) -> tuple[list[KeySpot], list[TensorSpot], int]:
    """All metadata entries, all tensor rows, and where the header ends (padding not counted)."""
    keys, at = [], FIRST_KEY_AT
    for _ in range(_u64(data, N_KEYS_AT)):
        length = _u64(data, at)
        type_at = at + 8 + length
        kind = _u32(data, type_at)
        name = data[at + 8 : type_at].decode()
        count_at = type_at + 8 if kind == _ARRAY else None
        value_at = type_at + (16 if kind == _ARRAY else 4)
        keys.append(KeySpot(name, at, type_at, value_at, count_at))
        at = _value_end(data, type_at, kind)
    tensors = []
    for _ in range(_u64(data, N_TENSORS_AT)):
        length = _u64(data, at)
        n_dims_at = at + 8 + length
        type_at = n_dims_at + 4 + 8 * _u32(data, n_dims_at)
        name = data[at + 8 : n_dims_at].decode()
        tensors.append(TensorSpot(name, at, n_dims_at, n_dims_at + 4, type_at, type_at + 4))
        at = type_at + 12
    return keys, tensors, at


def _value_end(data: bytes, type_at: int, kind: int) -> int:
    if kind == _STRING:
        return type_at + 12 + _u64(data, type_at + 4)
    if kind != _ARRAY:
        return type_at + 4 + _SCALAR_BYTES[kind]
    item, count, at = _u32(data, type_at + 4), _u64(data, type_at + 8), type_at + 16
    if item != _STRING:
        return at + count * _SCALAR_BYTES[item]
    for _ in range(count):
        at += 8 + _u64(data, at)
    return at


def patched(data: bytes, at: int, layout: str, *values: float) -> bytes:
    """A copy of `data` with `values`, packed by the struct layout, written at `at`."""
    copy = bytearray(data)
    struct.pack_into(layout, copy, at, *values)
    return bytes(copy)
