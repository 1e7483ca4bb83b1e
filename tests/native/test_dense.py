"""Models with plain attention in every block: their numbers, batch invariance and drafts.

Shapes of bench/dense_shapes.py: heads of 64, 128 and 256, groups of 2 to 16 query heads, rope in halves and in
pairs, with and without norms, biases, frequency divisors and an output matrix; widths that are no multiple of 256.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pyjet.model.reader import Model
from pyjet.native import EngineConfig, NativeEngine, NativeError
from tests.native.conftest import MakeModel
from tests.support.float_embedding import with_float_embedding
from tests.support.native_steps import ALL_OUTPUTS, Part, Run, make_batch, run_alone, same_bits, step_runs
from tests.support.random_norms import with_random_norms
from tests.support.reference_model import ReferenceModel, relative_error, row_errors

BIASED_AND_TIED = (".output.weight",)
MODELS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "qwen3": ("micro-qwen3", None),
    "qwen3-256": ("micro-qwen3-256", None),
    "qwen2": ("micro-qwen2", None),
    "llama": ("micro-llama", None),
    "llama-16": ("micro-llama-16", None),
    "llama-plain": ("micro-llama", (".bias", "rope_freqs")),
    "llama-biased": ("micro-llama", BIASED_AND_TIED),
}
# Fractions of the RMS: reference with K and V in half precision, float weights.
F16_LIMIT, Q8_0_LIMIT = 3e-3, 1.5e-1
QUARTILE_LIMIT, WORST_LIMIT = 5e-6, 6e-2  # int8 inputs of quantised weights
N_TOKENS, N_LONG = 90, 700


@dataclass
class Case:
    model: Model
    tokens: list[int]


MakeCase = Callable[..., Case]


@pytest.fixture(scope="module")
def case(synthetic_model: MakeModel) -> MakeCase:
    def make(name: str, type_name: str = "F32", n: int = N_TOKENS) -> Case:
        preset, without = MODELS[name]
        model = with_random_norms(synthetic_model(preset, type_name, without=without))
        tokens = np.random.default_rng(4).integers(0, model.hyperparams.n_vocab, n).tolist()
        return Case(model, tokens)

    return make


def engine_of(model: Model, kv: str = "f16", **settings: int) -> NativeEngine:
    sizes = {"n_pages": 24, "n_state_slots": 4, "max_rows": 128, "max_spec": 4, "page_tokens": 48, "n_threads": 2}
    return NativeEngine(model, EngineConfig(kv_type_k=kv, kv_type_v=kv, **{**sizes, **settings}))


@pytest.mark.parametrize("name", MODELS)
def test_float_weights(name: str, case: MakeCase) -> None:
    it = case(name)
    half = ReferenceModel(it.model, half_kv=True).trunk(it.tokens)
    exact = ReferenceModel(it.model).trunk(it.tokens)
    for kv, expected, limit in (("f16", half, F16_LIMIT), ("q8_0", exact, Q8_0_LIMIT)):
        with engine_of(it.model, kv) as engine:
            result = engine.step(make_batch(Part(it.tokens, pages=range(4), flags=ALL_OUTPUTS)))
            assert relative_error(result.logits, expected.logits) < limit, kv
            assert relative_error(result.hidden, expected.hidden) < 3 * limit, kv


@pytest.mark.parametrize(("name", "type_name"), [("qwen3", "Q4_K_M"), ("qwen2", "Q8_0"), ("llama-plain", "Q4_1")])
def test_quantised_weights(name: str, type_name: str, case: MakeCase) -> None:
    it = case(name, type_name, n=32)
    model = with_float_embedding(it.model)
    expected = ReferenceModel(model, half_kv=True, int8_inputs=True).trunk(it.tokens).logits
    with engine_of(model) as engine:
        errors = row_errors(engine.step(make_batch(Part(it.tokens, pages=range(4)))).logits, expected)
    assert np.quantile(errors, 0.25) < QUARTILE_LIMIT, errors
    assert errors.max() < WORST_LIMIT, errors


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize(
    ("name", "type_name"),
    [("qwen3", "Q4_K_M"), ("qwen3-256", "Q8_0"), ("qwen2", "Q8_0"), ("llama", "Q4_1"), ("llama-16", "F16")],
)
def test_batch_invariance(name: str, type_name: str, kv: str, case: MakeCase) -> None:
    """Chunks of any size, scattered pages, beside others: always the bits of one row after the other."""
    it = case(name, type_name)
    others = [it.tokens[5:40], it.tokens[2:77]]
    rng = np.random.default_rng(1)
    with engine_of(it.model, kv) as engine:
        expected = run_alone(engine, it.tokens, 1)
        for chunk in (7, 64, N_TOKENS):
            assert same_bits(run_alone(engine, it.tokens, chunk), expected), chunk
        pages = rng.permutation(engine.config.n_pages).reshape(3, -1)
        runs = [Run(tokens, slot, pages[slot].tolist()) for slot, tokens in enumerate([it.tokens, *others])]
        while any(run.left for run in runs):
            order = [runs[i] for i in rng.permutation(3)]
            step_runs(engine, [(r, min(r.left, int(rng.choice([1, 2, 9, 33])))) for r in order if r.left])
        assert same_bits(runs[0].all_logits, expected)
        for run in runs[1:]:
            assert same_bits(run.all_logits, run_alone(engine, run.tokens, len(run.tokens)))


@pytest.mark.parametrize("kv", ["f16", "q8_0"])
@pytest.mark.parametrize("name", ["qwen3", "qwen2", "llama"])
def test_long_context(name: str, kv: str, case: MakeCase) -> None:
    """Several segments of attention, computed apart or together."""
    it = case(name, "F16", N_LONG)
    with engine_of(it.model, kv) as engine:
        run, whole = Run(it.tokens, 0, range(16)), Run(it.tokens, 1, range(16))
        while run.left > 6:
            step_runs(engine, [(run, min(50, run.left - 6))])
        for n in (1, 1, 3, 1):
            step_runs(engine, [(run, n)])
        while whole.left:
            step_runs(engine, [(whole, min(128, whole.left))])
        assert same_bits(run.all_logits, whole.all_logits)


@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_rejected_rows_leave_no_trace(name: str, case: MakeCase) -> None:
    """Rows of wrong guesses are overwritten; there is no state to roll back."""
    it = case(name, "F16")
    with engine_of(it.model) as engine:
        expected = run_alone(engine, it.tokens[:40], 40)
        wrong = [(token + 1) % engine.n_vocab for token in it.tokens[21:24]]
        engine.step(make_batch(Part(it.tokens[:20], pages=range(4))))
        guessed = engine.step(make_batch(Part([it.tokens[20], *wrong], 20, pages=range(4), n_spec=3)))
        assert same_bits(guessed.logits[:1].copy(), expected[20:21])
        again = engine.step(make_batch(Part(it.tokens[21:40], 21, pages=range(4), n_accept=0)))
        assert same_bits(again.logits.copy(), expected[21:40])


def test_no_state(case: MakeCase) -> None:
    """Nothing recurrent: any position of the pages can be continued, in any slot."""
    it = case("qwen3", "F16")
    with engine_of(it.model) as engine:
        assert engine.state_bytes == 0 and engine.info().state_bytes == 0
        expected = run_alone(engine, it.tokens, N_TOKENS)
        logits = engine.step(make_batch(Part(it.tokens[33:50], 33, slot=2, pages=range(4)))).logits
        assert same_bits(logits.copy(), expected[33:50])


def test_divisors_must_be_positive(case: MakeCase) -> None:
    it = case("llama")
    old = it.model.tensors["rope_freqs.weight"]
    zero = replace(old, data=np.zeros(old.n_bytes, np.uint8))
    with pytest.raises(NativeError, match=r"rope_freqs\.weight divides by 0"):
        engine_of(replace(it.model, tensors={**it.model.tensors, old.name: zero}))
