"""Random weights of every type that pyjet reads, as the bytes of a GGUF tensor."""

from __future__ import annotations

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize

# Byte offsets of the f16 fields of a block. All other bytes of a block may have any value.
HALF_FIELDS = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
FLOAT_TYPES = ("F32", "F16", "BF16")
ALL_TYPES = (*FLOAT_TYPES, *HALF_FIELDS)
# The types that gguf.quants can also write.
WRITABLE_TYPES = (*FLOAT_TYPES, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


def random_weight(name: str, n_out: int, n_in: int, rng: np.random.Generator, scale: float = 0.1) -> np.ndarray:
    """uint8[n_out, row bytes]: random integers; f16 scales uniform in [-scale, scale]."""
    if name in FLOAT_TYPES:
        return quantized_weight(name, n_out, n_in, rng)
    elements, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, (n_out * n_in // elements, n_bytes), dtype=np.uint8)
    for offset in HALF_FIELDS[name]:
        halves = rng.uniform(-scale, scale, (len(blocks), 1)).astype(np.float16)
        blocks[:, offset : offset + 2] = halves.view(np.uint8)
    return blocks.reshape(n_out, -1)


def quantized_weight(name: str, n_out: int, n_in: int, rng: np.random.Generator) -> np.ndarray:
    """uint8[n_out, row bytes]: a normal matrix written by gguf.quants."""
    values = rng.standard_normal((n_out, n_in)).astype(np.float32)
    return np.ascontiguousarray(quantize(values, GGMLQuantizationType[name])).view(np.uint8).reshape(n_out, -1)
