"""The product kernels against float64 on the same integers, and promise P1: a row's bits depend on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as reference

from pyjet.native import NativeError, build_info, cpu_isa, matmul
from pyjet.native.config import ISAS, Isa
from tests.native.random_weights import ALL_TYPES, FLOAT_TYPES, quantized_weight, random_weight
from tests.support.reference_model import round_int8

BEST = ISAS.index(cpu_isa())
RUNNABLE: tuple[Isa, ...] = tuple(isa for isa in ISAS[1 : BEST + 1] if isa in build_info())
N_OUT, N_IN = 35, 768


def rows(n: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, N_IN)).astype(np.float32)


@pytest.mark.parametrize("isa", RUNNABLE)
@pytest.mark.parametrize("name", ALL_TYPES)
def test_against_float64(name: str, isa: Isa) -> None:
    number = GGMLQuantizationType[name]
    weight = random_weight(name, N_OUT, N_IN, np.random.default_rng(4))
    x = rows(11)
    span = GGML_QUANT_SIZES[number][0]  # activations share a scale over a block of the weight
    seen = x.astype(np.float64) if name in FLOAT_TYPES else round_int8(x.astype(np.float64), span)
    w = reference(weight, number).astype(np.float64).reshape(N_OUT, N_IN)
    y, _ = matmul(number, weight, N_IN, N_OUT, x, isa=isa)
    size = np.abs(seen) @ np.abs(w).T
    assert np.max(np.abs(y - seen @ w.T) / size) < 1e-6


@pytest.mark.parametrize("isa", RUNNABLE)
@pytest.mark.parametrize("name", ALL_TYPES)
def test_rows_alone_and_together(name: str, isa: Isa) -> None:
    number = GGMLQuantizationType[name]
    weight = random_weight(name, N_OUT, N_IN, np.random.default_rng(6))
    x = rows(21)
    together, _ = matmul(number, weight, N_IN, N_OUT, x, isa=isa, n_threads=2)
    for chunk in (1, 2, 3, 5, 8, 13):
        for begin in range(0, len(x), chunk):
            part, _ = matmul(number, weight, N_IN, N_OUT, x[begin : begin + chunk], isa=isa)
            np.testing.assert_array_equal(part.view(np.uint32), together[begin : begin + chunk].view(np.uint32))


@pytest.mark.skipif(RUNNABLE[-2:] != ("avx2", "avx512_vnni"), reason="needs both vector instruction sets")
@pytest.mark.parametrize("name", ALL_TYPES)
def test_vector_instruction_sets_agree(name: str) -> None:
    number = GGMLQuantizationType[name]
    weight = random_weight(name, N_OUT, N_IN, np.random.default_rng(7))
    avx2, _ = matmul(number, weight, N_IN, N_OUT, rows(9), isa="avx2")
    avx512, _ = matmul(number, weight, N_IN, N_OUT, rows(9), isa="avx512_vnni")
    np.testing.assert_array_equal(avx2.view(np.uint32), avx512.view(np.uint32))


@pytest.mark.parametrize("isa", RUNNABLE)
def test_largest_integers_do_not_saturate(isa: Isa) -> None:
    weight = np.zeros((16, N_IN // 32, 34), np.uint8)
    weight[:, :, :2] = np.array([1], np.float16).view(np.uint8)
    for value in (-128, 127):
        weight[:, :, 2:] = np.array(value, np.int8).view(np.uint8)
        x = np.repeat(np.array([[-1.0], [1.0]], np.float32), N_IN, axis=1)
        y, _ = matmul(GGMLQuantizationType.Q8_0, weight.reshape(16, -1), N_IN, 16, x, isa=isa)
        scale = float(np.float16(1 / 127)) * 127  # the activations' scale is kept in f16
        np.testing.assert_allclose(y, np.array([[-value * N_IN] * 16, [value * N_IN] * 16]) * scale, rtol=1e-6)


def test_quantised_activations_cost_little() -> None:
    weight = quantized_weight("Q8_0", N_OUT, N_IN, np.random.default_rng(8))
    x = rows(32)
    exact = x @ reference(weight, GGMLQuantizationType.Q8_0).reshape(N_OUT, N_IN).T
    y, _ = matmul(GGMLQuantizationType.Q8_0, weight, N_IN, N_OUT, x)
    assert np.linalg.norm(y - exact) / np.linalg.norm(exact) < 0.01


def test_float_weights_of_any_width() -> None:
    weight = np.random.default_rng(9).standard_normal((5, 7)).astype(np.float32)
    x = np.random.default_rng(10).standard_normal((3, 7)).astype(np.float32)
    y, _ = matmul(GGMLQuantizationType.F32, weight.view(np.uint8), 7, 5, x)
    np.testing.assert_allclose(y, x @ weight.T, rtol=1e-5, atol=1e-6)


def test_nothing_to_multiply_is_refused() -> None:
    weight = quantized_weight("Q8_0", 4, 32, np.random.default_rng(11))
    with pytest.raises(NativeError, match="n_rows"):
        matmul(GGMLQuantizationType.Q8_0, weight, 32, 4, np.zeros((0, 32), np.float32))
