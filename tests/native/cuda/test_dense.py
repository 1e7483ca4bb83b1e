"""Dense models on a GPU: the tests of tests/native/test_dense.py, and the CPU's numbers with quantised weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyjet.model.reader import Model
from pyjet.native import EngineConfig, NativeEngine, NativeError, memory_plan
from tests.native.conftest import MakeModel
from tests.native.cuda.conftest import cuda_config
from tests.native.cuda.test_numbers import both, mean_kl
from tests.native.test_dense import (
    MODELS,
    Case,
    MakeCase,
    case,
    test_batch_invariance,
    test_divisors_must_be_positive,
    test_float_weights,
    test_long_context,
    test_no_state,
    test_rejected_rows_leave_no_trace,
)
from tests.support.native_steps import run_alone, same_bits
from tests.support.random_norms import with_random_norms
from tests.support.reference_model import row_errors

__all__ = [
    "case",
    "test_batch_invariance",
    "test_divisors_must_be_positive",
    "test_float_weights",
    "test_long_context",
    "test_no_state",
    "test_rejected_rows_leave_no_trace",
]

FLOAT_LIMIT = 5e-3  # of the RMS
N_LONG = 2300  # past the borders where segments grow


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize("name", MODELS)
def test_numbers_of_the_cpu(synthetic_model: MakeModel, name: str, kv: str) -> None:
    """560 tokens, 280 a step: prompts of more rows than a narrow launch has."""
    preset, without = MODELS[name]
    model = with_random_norms(synthetic_model(preset, "F16", without=without))
    gpu, cpu = both(model, 560, 280, kv_type_k=kv, kv_type_v=kv)
    errors = row_errors(gpu, cpu.astype(np.float64))
    assert np.median(errors) < (FLOAT_LIMIT if kv == "f16" else 5e-2)
    assert mean_kl(gpu, cpu) < 1e-3


@pytest.mark.parametrize(
    ("name", "type_name"),
    [("qwen3", "Q4_K_M"), ("qwen3", "Q6_K"), ("qwen3-256", "Q8_0"), ("qwen2", "Q8_0"), ("llama", "Q4_1"),
     ("llama", "Q8_0"), ("llama-biased", "IQ4_NL")],
)  # fmt: skip
def test_quantised_weights(synthetic_model: MakeModel, name: str, type_name: str) -> None:
    """On tensor cores and without; a wrong scale, sign, row or head would be off by 1."""
    preset, without = MODELS[name]
    gpu, cpu = both(synthetic_model(preset, type_name, without=without), 120, 120)
    assert np.median(row_errors(gpu, cpu.astype(np.float64))) < 0.5
    assert mean_kl(gpu, cpu) < 2e-2


def long_bits(model: Model, kv: str) -> tuple[np.ndarray, np.ndarray]:
    """A prompt in large steps, and its last rows one by one."""
    tokens = np.random.default_rng(11).integers(0, model.hyperparams.n_vocab, N_LONG).tolist()
    config = cuda_config(n_pages=80, n_state_slots=1, max_rows=512, kv_type_k=kv, kv_type_v=kv)
    with NativeEngine(model, config) as engine:
        whole = run_alone(engine, tokens, 512)[-3:]
        return whole, run_alone(engine, tokens, 77)[-3:]


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize("name", ["qwen3", "qwen2", "llama"])
def test_many_segments(case: MakeCase, name: str, kv: str) -> None:
    it: Case = case(name, "F16")
    whole, parts = long_bits(it.model, kv)
    assert same_bits(whole, parts)


def test_other_head_widths_are_refused(case: MakeCase) -> None:
    it: Case = case("qwen3-256", "F16")
    narrow = replace(it.model.hyperparams, rope_dim=32)
    with pytest.raises(NativeError, match="rotated dimensions is 32, the CUDA backend needs 64, 128 or 256"):
        memory_plan(replace(it.model, hyperparams=narrow), cuda_config(n_pages=4, n_state_slots=1))


def test_pages_of_heads_that_share_a_wide_one(case: MakeCase) -> None:
    """Two heads of 128 take what two take; one of 64 has the page of four (native/cuda/kv_layout.h)."""

    def page_bytes(name: str, config: type[EngineConfig]) -> int:
        return memory_plan(case(name, "F16").model, config(n_pages=4, n_state_slots=1)).page_bytes

    assert page_bytes("qwen3", cuda_config) == page_bytes("qwen3", EngineConfig)
    assert page_bytes("llama", cuda_config) == 4 * page_bytes("llama", EngineConfig)
