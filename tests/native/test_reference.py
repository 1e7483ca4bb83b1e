"""The engine's numbers against the float64 model of tests/support/reference_model.py.

Float weights: everything but float32 rounding is accounted for when the reference stores K and V in half precision.
Quantised weights: the reference rounds the same inputs to int8. A value that lies between two integers may still fall
on the other side in float32; such a row, and those after it, differ by up to some 2e-2. Most rows have no such value
in front of them, so the strict limit is on the lower quartile and a loose one on the worst row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.make_synthetic_gguf import FILE_TYPES
from pyjet.model.reader import Model
from pyjet.native import EngineConfig, NativeEngine, cpu_isa
from pyjet.native.config import ISAS
from tests.native.conftest import MakeModel
from tests.support.float_embedding import with_float_embedding
from tests.support.native_steps import ALL_OUTPUTS, Part, make_batch
from tests.support.reference_model import ReferenceModel, relative_error, row_errors

MACHINE_ISAS = ISAS[1 : ISAS.index(cpu_isa()) + 1]
FLOAT_MODELS = ("micro", "tiny", "pyjet-tiny")
# Largest differences as fractions of the RMS: some three to five times what portable, AVX2 and AVX-512 code show.
F16_PURE_LIMIT = 3e-3  # reference without any rounding; measured 7e-4, 5e-4 and 9e-4 for the three models
F16_LIMIT = 5e-4  # reference with half precision K and V; measured 6e-5, 1e-4, 1e-4; MTP 2e-5, 2e-5, 2e-4
Q8_0_LIMIT = 6e-2  # measured 2.3e-2, 1.2e-2, 2.2e-2
QUARTILE_LIMIT, WORST_LIMIT = 5e-6, 6e-2  # int8 inputs; measured 6e-7 and 2e-2
HIDDEN_FACTOR = 3.0  # hidden rows of pyjet-tiny have larger peaks over their RMS than logits


def random_tokens(model: Model, n: int) -> list[int]:
    return np.random.default_rng(5).integers(0, model.hyperparams.n_vocab, n).tolist()


def float_model(name: str, synthetic_model: MakeModel, tiny_model: MakeModel) -> Model:
    return tiny_model("F32") if name == "pyjet-tiny" else synthetic_model(name, "F32")


def run_trunk(model: Model, tokens: list[int], isa: str, kv: str = "f16") -> tuple[np.ndarray, np.ndarray]:
    """Logits and hidden rows of one step."""
    config = EngineConfig(n_pages=4, n_state_slots=1, isa=isa, n_threads=1, kv_type_k=kv, kv_type_v=kv, max_rows=128)
    with NativeEngine(model, config) as engine:
        result = engine.step(make_batch(Part(tokens, pages=range(4), flags=ALL_OUTPUTS)))
        return result.logits.copy(), result.hidden.copy()


@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_float_weights(name: str, synthetic_model: MakeModel, tiny_model: MakeModel) -> None:
    model = float_model(name, synthetic_model, tiny_model)
    tokens = random_tokens(model, 80)
    exact = ReferenceModel(model).trunk(tokens)
    half = ReferenceModel(model, half_kv=True).trunk(tokens)
    for isa in MACHINE_ISAS:
        logits, hidden = run_trunk(model, tokens, isa)
        assert relative_error(logits, half.logits) < F16_LIMIT, isa
        assert relative_error(hidden, half.hidden) < HIDDEN_FACTOR * F16_LIMIT, isa
        assert relative_error(logits, exact.logits) < F16_PURE_LIMIT, isa
        assert np.mean(logits.argmax(axis=1) == exact.logits.argmax(axis=1)) > 0.98
        logits, hidden = run_trunk(model, tokens, isa, "q8_0")
        assert relative_error(logits, exact.logits) < Q8_0_LIMIT, isa
        assert relative_error(hidden, exact.hidden) < HIDDEN_FACTOR * Q8_0_LIMIT, isa


@pytest.mark.parametrize("type_name", FILE_TYPES)
def test_every_weight_type(type_name: str, synthetic_model: MakeModel) -> None:
    model = with_float_embedding(synthetic_model("micro", type_name))
    tokens = random_tokens(model, 32)
    expected = ReferenceModel(model, half_kv=True, int8_inputs=True).trunk(tokens).logits
    for isa in MACHINE_ISAS:
        errors = row_errors(run_trunk(model, tokens, isa)[0], expected)
        assert np.quantile(errors, 0.25) < QUARTILE_LIMIT, (isa, errors)
        assert errors.max() < WORST_LIMIT, (isa, errors)


@pytest.mark.parametrize("type_name", FILE_TYPES)
def test_every_type_of_embedding(type_name: str, synthetic_model: MakeModel) -> None:
    """All tensors of the type, against a reference that rounds nothing: the loss of int8 inputs is small."""
    model = synthetic_model("micro", type_name)
    tokens = random_tokens(model, 32)
    expected = ReferenceModel(model).trunk(tokens).logits
    logits, _ = run_trunk(model, tokens, "auto")
    rms = np.sqrt(np.mean((logits - expected) ** 2) / np.mean(expected**2))
    assert rms < (1e-3 if type_name in ("F32", "F16", "BF16") else 0.08)


def test_the_reference_sees_wrong_weights(synthetic_model: MakeModel) -> None:
    """Negative control: half a percent more on the taps of one convolution is far beyond the limit."""
    model = synthetic_model("micro", "F32")
    tokens = random_tokens(model, 32)
    name = "blk.0.ssm_conv1d.weight"
    taps = (model.tensors[name].data.view(np.float32) * np.float32(1.005)).view(np.uint8)
    wrong = replace(model, tensors={**model.tensors, name: replace(model.tensors[name], data=taps)})
    expected = ReferenceModel(model, half_kv=True).trunk(tokens).logits
    assert relative_error(run_trunk(wrong, tokens, "auto")[0], expected) > 4 * F16_LIMIT
