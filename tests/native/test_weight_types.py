"""Dequantisation of every weight type: the same bits as gguf.quants.dequantize."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as reference

from pyjet.native import NativeError, dequantize
from tests.native.random_weights import ALL_TYPES, HALF_FIELDS, WRITABLE_TYPES, quantized_weight, random_weight

N_OUT, N_IN = 33, 1024


def check_bits(name: str, weight: np.ndarray) -> None:
    number = GGMLQuantizationType[name]
    ours = dequantize(number, weight, N_IN, len(weight))
    theirs = np.ascontiguousarray(reference(weight, number), dtype=np.float32).reshape(ours.shape)
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("name", ALL_TYPES)
@pytest.mark.parametrize("scale", [0.1, 1e-6, 6e4])
def test_random_blocks(name: str, scale: float) -> None:
    check_bits(name, random_weight(name, N_OUT, N_IN, np.random.default_rng(1), scale))


@pytest.mark.parametrize("name", WRITABLE_TYPES)
def test_blocks_of_the_reference_quantiser(name: str) -> None:
    check_bits(name, quantized_weight(name, N_OUT, N_IN, np.random.default_rng(2)))


@pytest.mark.parametrize("name", HALF_FIELDS)
@pytest.mark.parametrize("byte", [0x00, 0x55, 0xAA, 0xFF])
def test_constant_blocks(name: str, byte: int) -> None:
    weight = random_weight(name, N_OUT, N_IN, np.random.default_rng(3))
    block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]
    blocks = weight.reshape(-1, block_bytes)
    is_scale = np.zeros(block_bytes, bool)
    for offset in HALF_FIELDS[name]:
        is_scale[offset : offset + 2] = True
    blocks[:, ~is_scale] = byte
    check_bits(name, weight)


def test_every_half() -> None:
    finite = np.arange(65536, dtype=np.uint16)
    finite = finite[(finite & 0x7C00) != 0x7C00]
    ours = dequantize(GGMLQuantizationType.F16, finite.view(np.uint8), len(finite), 1)
    np.testing.assert_array_equal(ours[0].view(np.uint32), finite.view(np.float16).astype(np.float32).view(np.uint32))


def test_infinite_halves_stay() -> None:
    halves = np.array([np.inf, -np.inf, np.nan], np.float16)
    np.testing.assert_array_equal(dequantize(1, halves.view(np.uint8), 3, 1)[0], halves.astype(np.float32))


def test_unknown_type_is_refused() -> None:
    with pytest.raises(NativeError, match="supported: F32"):
        dequantize(9999, np.zeros(32, np.uint8), 32, 1)


def test_partial_block_is_refused() -> None:
    with pytest.raises(NativeError, match="multiple of 256"):
        dequantize(GGMLQuantizationType.Q4_K, np.zeros(144, np.uint8), 128, 1)


def test_wrong_size_is_refused() -> None:
    with pytest.raises(NativeError, match="34 bytes, got 33"):
        dequantize(GGMLQuantizationType.Q8_0, np.zeros(33, np.uint8), 32, 1)
