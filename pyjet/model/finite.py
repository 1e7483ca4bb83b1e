"""The --check-tensors scan: NaN and infinity in weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from pyjet.model.weight_types import HALF_SCALE_OFFSETS

_CHUNK_BYTES = 1 << 24
# (unsigned integer of the same width, mask of the exponent): all exponent bits set means NaN or infinity
_FLOATS: dict[GGMLQuantizationType, tuple[np.dtype[Any], int]] = {
    GGMLQuantizationType.F32: (np.dtype("<u4"), 0x7F800000),
    GGMLQuantizationType.F16: (np.dtype("<u2"), 0x7C00),
    GGMLQuantizationType.BF16: (np.dtype("<u2"), 0x7F80),
}


def first_bad_element(data: np.ndarray, kind: GGMLQuantizationType) -> int | None:
    """Index of the first element (or first element of the block) that is not finite, None if all are.

    data: uint8 [n_bytes], whole blocks of type `kind`. Read in chunks, so memory stays small.
    """
    block, block_bytes = GGML_QUANT_SIZES[kind]
    step = max(1, _CHUNK_BYTES // block_bytes) * block_bytes
    for start in range(0, len(data), step):
        bad = _bad_blocks(data[start : start + step], kind, block_bytes)
        if bad.size:
            return (start // block_bytes + int(bad[0])) * block
    return None


def _bad_blocks(chunk: np.ndarray, kind: GGMLQuantizationType, block_bytes: int) -> np.ndarray:
    if kind in _FLOATS:
        dtype, mask = _FLOATS[kind]
        return np.flatnonzero((_aligned(chunk).view(dtype) & mask) == mask)
    blocks = chunk.reshape(-1, block_bytes)
    bad = np.zeros(len(blocks), bool)
    for offset in HALF_SCALE_OFFSETS[kind]:
        scales = np.ascontiguousarray(blocks[:, offset : offset + 2]).view("<u2")[:, 0]
        bad |= (scales & 0x7C00) == 0x7C00
    return np.flatnonzero(bad)


def _aligned(chunk: np.ndarray) -> np.ndarray:
    """A copy when the memory map's address does not suit a wider view (alignments below 4 are legal in GGUF)."""
    return chunk if chunk.ctypes.data % 4 == 0 else chunk.copy()
