"""Strict parser of a GGUF file's header: metadata and tensor table.

`gguf.GGUFReader` trusts every count and length in the file and makes several numpy arrays per vocabulary
entry (11 s for 152K tokens). This parser checks each count, length and offset against the file's size before
it uses it, so a damaged or hostile file costs no more memory than its own size allows, and reads the same
vocabulary in a fraction of a second. Format: docs/gguf.md of the ggml project, versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from pyjet.model.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_DIMS = 4
MAX_KEY_BYTES = 65535
MAX_NAME_BYTES = 63
MAX_STRING_BYTES = 1 << 26
MAX_ARRAY_ITEMS = 1 << 24

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SCALARS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "|u1",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}
_DOWNLOAD_AGAIN = "download it again and compare its size and checksum with the publisher's"


@dataclass(frozen=True)
class TensorEntry:
    """One row of the tensor table. shape is in ggml order (contiguous dimension first), offset counts from byte 0."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class Header:
    """What a GGUF file says before its tensor data."""

    version: int
    metadata: dict[str, Any]
    tensors: tuple[TensorEntry, ...]
    data_offset: int


def parse_header(data: Any, path: str) -> Header:
    """Parse the header of the GGUF file whose bytes are `data` (mmap or bytes; slices must be bytes).

    Raises ModelError that names `path` and the key or tensor when anything does not fit.
    """
    scan = _Scanner(data, path)
    version = _check_magic(scan)
    n_tensors = scan.u64("the number of tensors")
    n_keys = scan.u64("the number of metadata keys")
    # The smallest tensor row has 33 bytes, the smallest metadata entry 14: counts beyond that cannot be true.
    scan.check_count(n_tensors, 33, "tensors")
    scan.check_count(n_keys, 14, "metadata keys")
    metadata = _read_metadata(scan, n_keys)
    alignment = _alignment(metadata, path)
    rows = [_read_tensor_row(scan) for _ in range(n_tensors)]
    data_offset = -(-scan.pos // alignment) * alignment
    tensors = _place_tensors(rows, data_offset, alignment, len(data), path)
    return Header(version, metadata, tensors, data_offset)


class _Scanner:
    """A cursor over the file that never reads past its end."""

    def __init__(self, data: Any, path: str) -> None:
        self.data = data
        self.size = len(data)
        self.path = path
        self.pos = 0

    def fail(self, message: str) -> ModelError:
        return ModelError(f"{self.path}: {message}")

    def need(self, n_bytes: int, what: str) -> None:
        if n_bytes > self.size - self.pos:
            raise self.fail(
                f"the file is truncated or corrupt: {what} needs {n_bytes} bytes at offset {self.pos}, "
                f"but the file ends at {self.size}; {_DOWNLOAD_AGAIN}"
            )

    def check_count(self, count: int, item_bytes: int, what: str) -> None:
        if count * item_bytes > self.size - self.pos:
            raise self.fail(
                f"the file is truncated or corrupt: it announces {count} {what}, more than the rest of its "
                f"{self.size} bytes can hold; {_DOWNLOAD_AGAIN}"
            )

    def take(self, n_bytes: int, what: str) -> bytes:
        self.need(n_bytes, what)
        start, self.pos = self.pos, self.pos + n_bytes
        return bytes(self.data[start : self.pos])

    def u32(self, what: str) -> int:
        return int(_U32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack(self.take(8, what))[0])

    def string(self, what: str, limit: int) -> bytes:
        length = self.u64(f"the length of {what}")
        if length > limit:
            raise self.fail(f"{what} is {length} bytes long (limit {limit}): the file is corrupt; {_DOWNLOAD_AGAIN}")
        return self.take(length, what)

    def name(self, what: str, limit: int) -> str:
        raw = self.string(what, limit)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not valid UTF-8: the file is corrupt; {_DOWNLOAD_AGAIN}") from None
        if not text or "\0" in text:
            raise self.fail(f"{what} is empty or has a zero byte: the file is corrupt; {_DOWNLOAD_AGAIN}")
        return text


def _check_magic(scan: _Scanner) -> int:
    magic = scan.take(4, "the GGUF magic")
    if magic != MAGIC:
        raise scan.fail(f"not a GGUF file (it starts with {magic!r}); convert the model to GGUF first")
    version = scan.u32("the GGUF version")
    if version & 0xFFFF == 0 and version:
        raise scan.fail("a big-endian GGUF file; convert it to little-endian (gguf-convert-endian)")
    if version not in VERSIONS:
        raise scan.fail(f"GGUF version {version} is not supported; versions 2 and 3 work")
    return version


def _read_metadata(scan: _Scanner, n_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(n_keys):
        key = scan.name(f"metadata key {index}", MAX_KEY_BYTES)
        if key in metadata:
            raise scan.fail(f"metadata key '{key}' is stored twice: the file is corrupt; {_DOWNLOAD_AGAIN}")
        metadata[key] = _read_value(scan, key)
    return metadata


def _read_value(scan: _Scanner, key: str) -> Any:
    kind = _value_type(scan, scan.u32(f"the type of key '{key}'"), key)
    if kind is GGUFValueType.STRING:
        return _text(scan.string(f"the value of key '{key}'", MAX_STRING_BYTES), key, scan)
    if kind is GGUFValueType.ARRAY:
        return _read_array(scan, key)
    return _numbers(scan, key, kind, 1)[0]


def _value_type(scan: _Scanner, number: int, key: str) -> GGUFValueType:
    try:
        return GGUFValueType(number)
    except ValueError:
        raise scan.fail(
            f"key '{key}' has the unknown value type {number}: the file is corrupt; {_DOWNLOAD_AGAIN}"
        ) from None


def _read_array(scan: _Scanner, key: str) -> list[Any]:
    kind = _value_type(scan, scan.u32(f"the element type of key '{key}'"), key)
    count = scan.u64(f"the length of key '{key}'")
    if kind is GGUFValueType.ARRAY:
        raise scan.fail(f"key '{key}' is an array of arrays, which GGUF readers do not support")
    if count > MAX_ARRAY_ITEMS:
        raise scan.fail(f"key '{key}' announces {count} items (limit {MAX_ARRAY_ITEMS}); {_DOWNLOAD_AGAIN}")
    if kind is GGUFValueType.STRING:
        scan.check_count(count, 8, f"strings in key '{key}'")
        return _read_strings(scan, key, count)
    return _numbers(scan, key, kind, count)


def _numbers(scan: _Scanner, key: str, kind: GGUFValueType, count: int) -> list[Any]:
    dtype = np.dtype(_SCALARS[kind])
    raw = scan.take(count * dtype.itemsize, f"the value of key '{key}'")
    values: list[Any] = np.frombuffer(raw, dtype).tolist()
    return [value != 0 for value in values] if kind is GGUFValueType.BOOL else values


def _read_strings(scan: _Scanner, key: str, count: int) -> list[str]:
    """The hot loop of loading: a vocabulary has 2 x 250,000 strings."""
    data, pos, size = scan.data, scan.pos, scan.size
    unpack = _U64.unpack_from
    raws: list[bytes] = []
    for index in range(count):
        if size - pos < 8 or (length := unpack(data, pos)[0]) > size - pos - 8:
            scan.pos = pos
            scan.need(size - pos + 1, f"item {index} of key '{key}'")
        pos += 8 + length
        raws.append(data[pos - length : pos])
    scan.pos = pos
    try:
        return [raw.decode("utf-8") for raw in raws]
    except UnicodeDecodeError:
        return [_text(raw, key, scan) for raw in raws]


def _text(raw: bytes, key: str, scan: _Scanner) -> str:
    """Tokenizer strings must be exact; a badly encoded description is no reason to refuse a model."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        if not key.startswith("tokenizer."):
            return raw.decode("utf-8", "replace")
        raise scan.fail(f"key '{key}' holds text that is not valid UTF-8 ({raw[:32]!r}); {_DOWNLOAD_AGAIN}") from None


def _alignment(metadata: dict[str, Any], path: str) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    valid = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_ALIGNMENT
    if not valid or value & (value - 1):
        raise ModelError(f"{path}: general.alignment is {value!r}; it must be a power of two, at most {MAX_ALIGNMENT}")
    return int(value)


def _read_tensor_row(scan: _Scanner) -> tuple[str, tuple[int, ...], int, int]:
    name = scan.name("a tensor name", MAX_NAME_BYTES)
    n_dims = scan.u32(f"the number of dimensions of tensor '{name}'")
    if not 1 <= n_dims <= MAX_DIMS:
        raise scan.fail(f"tensor '{name}' has {n_dims} dimensions; 1 to {MAX_DIMS} are possible; {_DOWNLOAD_AGAIN}")
    shape = tuple(scan.u64(f"the shape of tensor '{name}'") for _ in range(n_dims))
    type_number = scan.u32(f"the type of tensor '{name}'")
    return name, shape, type_number, scan.u64(f"the offset of tensor '{name}'")


def _place_tensors(
    rows: list[tuple[str, tuple[int, ...], int, int]], data_offset: int, alignment: int, size: int, path: str
) -> tuple[TensorEntry, ...]:
    """Check types, sizes and offsets; GGUF stores tensors in table order, each padded to the alignment."""
    entries: dict[str, TensorEntry] = {}
    expected = 0
    for name, shape, type_number, offset in rows:
        if name in entries:
            raise ModelError(f"{path}: tensor '{name}' is stored twice: the file is corrupt; {_DOWNLOAD_AGAIN}")
        kind = _tensor_type(type_number, name, path)
        n_bytes = _tensor_bytes(shape, kind, name, path)
        if offset != expected:
            raise ModelError(
                f"{path}: tensor '{name}' is at data offset {offset}, expected {expected}: the tensor table is "
                f"corrupt; {_DOWNLOAD_AGAIN}"
            )
        if data_offset + offset + n_bytes > size:
            raise ModelError(
                f"{path}: the file is truncated: tensor '{name}' ends at byte {data_offset + offset + n_bytes}, "
                f"the file has {size}; {_DOWNLOAD_AGAIN}"
            )
        entries[name] = TensorEntry(name, kind, shape, data_offset + offset, n_bytes)
        expected = -(-(offset + n_bytes) // alignment) * alignment
    return tuple(entries.values())


def _tensor_type(number: int, name: str, path: str) -> GGMLQuantizationType:
    try:
        return GGMLQuantizationType(number)
    except ValueError:
        raise ModelError(
            f"{path}: tensor '{name}' has the unknown type number {number}: the file is corrupt or newer than this "
            f"version; {_DOWNLOAD_AGAIN}"
        ) from None


def _tensor_bytes(shape: tuple[int, ...], kind: GGMLQuantizationType, name: str, path: str) -> int:
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if min(shape) < 1 or max(shape) >= 1 << 63:
        raise ModelError(f"{path}: tensor '{name}' has the impossible shape {list(shape)}; {_DOWNLOAD_AGAIN}")
    if shape[0] % block:
        raise ModelError(
            f"{path}: tensor '{name}' has rows of {shape[0]} elements, not a multiple of {kind.name}'s block of "
            f"{block}; {_DOWNLOAD_AGAIN}"
        )
    return math.prod(shape) // block * block_bytes
