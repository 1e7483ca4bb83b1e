"""Loading a GGUF model: one file or all parts of a split one, checked before anything uses it."""

from __future__ import annotations

import math
import mmap
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType

from pyjet.model.architecture import check_tensors as check_architecture
from pyjet.model.errors import ModelError
from pyjet.model.finite import first_bad_element
from pyjet.model.header import Header, parse_header
from pyjet.model.hyperparams import Hyperparams
from pyjet.model.weight_types import file_type_name

__all__ = ["Model", "ModelError", "TensorInfo", "load_model", "open_gguf"]

_SPLIT_NAME = re.compile(r"^(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf$")
_MAX_PARTS = 9999


@dataclass(frozen=True)
class TensorInfo:
    """One tensor. shape is in ggml order (contiguous dimension first); data is a read-only view of the file."""

    name: str
    type: int  # ggml type number
    type_name: str
    shape: tuple[int, ...]
    data: np.ndarray  # uint8 [n_bytes]
    n_bytes: int


@dataclass(frozen=True)
class Model:
    """A validated model. The tensors' memory maps live as long as the arrays do."""

    path: str
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    hyperparams: Hyperparams
    file_bytes: int  # size of all parts on disk
    n_params: int  # elements of all tensors
    type_counts: dict[str, int]  # tensors per type name, most frequent first
    ftype_name: str  # e.g. "Q4_K - Medium"
    name: str

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors: what llama-server calls the model's size."""
        return sum(tensor.n_bytes for tensor in self.tensors.values())


def load_model(
    path: str | os.PathLike[str], *, overrides: Mapping[str, Any] | None = None, check_tensors: bool = False
) -> Model:
    """Map a model file and check all of it that can be checked without reading the weights.

    overrides replace metadata values (--override-kv); check_tensors also reads every weight and refuses NaN and
    infinity (--check-tensors). Of a split file, name the first part. Raises ModelError, and nothing else, for a
    file that cannot be used.
    """
    path = os.fspath(path)
    parts = _open_parts(path)
    metadata = {**parts[0][0].metadata, **(overrides or {})}
    tensors = _merge_tensors(parts, path)
    try:
        hyperparams = Hyperparams.from_metadata(metadata, tensors)
        check_architecture(tensors, hyperparams)
        if check_tensors:
            _check_finite(tensors)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    return _model(path, metadata, tensors, hyperparams, sum(len(data) for _, data in parts))


def open_gguf(path: str | os.PathLike[str]) -> tuple[Header, np.ndarray]:
    """Map one GGUF file: its parsed header and its bytes (uint8, read-only). Raises ModelError."""
    path = os.fspath(path)
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelError(f"{path}: the file is empty; download it again")
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"{path}: cannot open the model file: {reason}; pass the path of a .gguf file") from None
    return parse_header(mapping, path), np.frombuffer(mapping, np.uint8)


def _open_parts(path: str) -> list[tuple[Header, np.ndarray]]:
    first = open_gguf(path)
    count = first[0].metadata.get("split.count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MAX_PARTS:
        raise ModelError(f"{path}: split.count is {count!r}, expected 1 to {_MAX_PARTS}")
    if count <= 1:
        return [first]
    parts = [first]
    for index, part_path in enumerate(_part_paths(path, count)[1:], start=1):
        if not os.path.exists(part_path):
            raise ModelError(f"{part_path}: part {index + 1} of {count} is missing; download all parts into one folder")
        parts.append(open_gguf(part_path))
        _check_part(parts[-1][0], index, part_path)
    return parts


def _part_paths(path: str, count: int) -> list[str]:
    folder, base = os.path.split(path)
    match = _SPLIT_NAME.match(base)
    if not match or int(match["count"]) != count:
        raise ModelError(
            f"{path}: a model in {count} parts whose first part is named NAME-00001-of-{count:05d}.gguf; "
            "restore the original file names"
        )
    if int(match["part"]) != 1:
        raise ModelError(f"{path}: this is part {int(match['part'])} of {count}; pass the first part (-00001-of-)")
    names = [f"{match['stem']}-{part:05d}-of-{count:05d}.gguf" for part in range(1, count + 1)]
    return [os.path.join(folder, name) for name in names]


def _check_part(header: Header, index: int, path: str) -> None:
    number = header.metadata.get("split.no")
    if number != index:
        raise ModelError(f"{path}: split.no is {number!r}, expected {index}; it is another part or model")


def _merge_tensors(parts: list[tuple[Header, np.ndarray]], path: str) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for header, data in parts:
        for entry in header.tensors:
            if entry.name in tensors:
                raise ModelError(f"{path}: tensor '{entry.name}' is in two parts; use the parts of one model only")
            view = data[entry.offset : entry.offset + entry.n_bytes]
            kind = entry.type
            tensors[entry.name] = TensorInfo(entry.name, int(kind), kind.name, entry.shape, view, entry.n_bytes)
    announced = parts[0][0].metadata.get("split.tensors.count", len(tensors))
    if announced != len(tensors):
        raise ModelError(f"{path}: the parts hold {len(tensors)} tensors, the first one announces {announced}")
    return tensors


def _check_finite(tensors: Mapping[str, TensorInfo]) -> None:
    for tensor in tensors.values():
        index = first_bad_element(tensor.data, GGMLQuantizationType(tensor.type))
        if index is not None:
            raise ModelError(
                f"tensor '{tensor.name}' holds NaN or infinity at element {index}; the file is corrupt: download or "
                "quantise it again"
            )


def _model(
    path: str, metadata: dict[str, Any], tensors: dict[str, TensorInfo], hyperparams: Hyperparams, file_bytes: int
) -> Model:
    counts = dict(Counter(tensor.type_name for tensor in tensors.values()).most_common())
    name = metadata.get("general.name")
    return Model(
        path=path,
        metadata=metadata,
        tensors=tensors,
        hyperparams=hyperparams,
        file_bytes=file_bytes,
        n_params=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        type_counts=counts,
        ftype_name=file_type_name(metadata.get("general.file_type"), counts),
        name=name if isinstance(name, str) and name else Path(path).stem,
    )
