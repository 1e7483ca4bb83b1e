"""The memory plan: what an engine says after creation is what the plan said before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pyjet.native import EngineConfig, MemoryPlan, NativeEngine, NativeError, memory, memory_plan, probe_memory_plan
from tests.native.conftest import MakeModel

SIZES = {"n_pages": 9, "n_state_slots": 3, "max_rows": 40, "max_spec": 2}


PRESETS_AND_TYPES = [
    *(("micro", name) for name in ("Q4_K_M", "F16", "IQ4_XS", "Q3_K", "Q5_1")),
    ("micro-qwen3", "Q4_K_M"),
    ("micro-llama", "Q8_0"),
]


@pytest.mark.parametrize(("preset", "type_name"), PRESETS_AND_TYPES)
@pytest.mark.parametrize("kv", ["f16", "q8_0"])
def test_plan_and_engine_agree(synthetic_model: MakeModel, preset: str, type_name: str, kv: str) -> None:
    model, config = synthetic_model(preset, type_name), EngineConfig(**SIZES, kv_type_k=kv, kv_type_v=kv)
    plan = memory_plan(model, config)
    with NativeEngine(model, config) as engine:
        info = engine.info()
        assert (plan.weight_bytes, plan.kv_bytes, plan.state_bytes) == (
            info.weight_bytes,
            info.kv_bytes,
            info.state_bytes,
        )
        assert plan.page_bytes == engine.page_bytes
        assert info.workspace_bytes <= plan.workspace_bytes <= info.workspace_bytes + 16 * engine.n_vocab * 4
    assert 0 < plan.free_bytes <= plan.total_bytes and plan.device_name.startswith("CPU")


def test_the_plan_of_a_model_that_is_refused(synthetic_model: MakeModel) -> None:
    model = synthetic_model("micro", "Q8_0")
    with pytest.raises(NativeError, match=r"pj_config.n_pages is 0"):
        memory_plan(model, EngineConfig(n_pages=0, n_state_slots=1))
    broken = replace(model, hyperparams=replace(model.hyperparams, n_ff=model.hyperparams.n_ff + 256))
    with pytest.raises(NativeError, match="ffn_") as caught:
        memory_plan(broken, EngineConfig(**SIZES))
    assert caught.value.kind == "model"


def test_the_probe_gives_the_same_plan(synthetic_model: MakeModel) -> None:
    model, config = synthetic_model("micro", "Q8_0"), EngineConfig(**SIZES)
    here, there = memory_plan(model, config), probe_memory_plan(model.path, {}, config)
    assert replace(there, free_bytes=0) == replace(here, free_bytes=0)


def test_errors_of_the_probe(synthetic_model: MakeModel, tmp_path: object) -> None:
    with pytest.raises(NativeError, match=f"{tmp_path}/none.gguf") as caught:
        probe_memory_plan(f"{tmp_path}/none.gguf", {}, EngineConfig(**SIZES))
    assert caught.value.kind == "model"
    with pytest.raises(NativeError, match=r"n_pages is 0") as caught:
        probe_memory_plan(synthetic_model("micro", "Q8_0").path, {}, EngineConfig(n_pages=0, n_state_slots=1))
    assert caught.value.kind == "argument"


def test_overrides_reach_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, object]] = []

    def run(_module: str, _function: str, request: str) -> str:
        sent.append(json.loads(request))
        return json.dumps({"code": 3, "error": "no"})

    monkeypatch.setattr(memory, "run_probe", run)
    with pytest.raises(NativeError, match="no"):
        probe_memory_plan("m.gguf", {"qwen35.context_length": 512}, EngineConfig(**SIZES, device="cuda"))
    assert sent[0]["overrides"] == {"qwen35.context_length": 512}
    assert EngineConfig(**sent[0]["config"]) == EngineConfig(**SIZES, device="cuda")  # type: ignore[arg-type]


def test_arithmetic() -> None:
    plan = MemoryPlan("GPU", 700, 10, 50, 50, 100, 50, 1200, 2000)
    assert (plan.fixed_bytes, plan.kv_bytes, plan.needed_bytes) == (900, 500, 1400)
    assert not plan.fits() and plan.pages_that_fit() == 30 and plan.pages_that_fit(100) == 20
    assert plan.pages_that_fit(1000) == 0 and plan.with_pages(30).fits() and not plan.with_pages(30).fits(1)
    unknown = replace(plan, free_bytes=0)
    assert unknown.fits(1 << 40) and unknown.pages_that_fit() == 50 and "unknown amount" in str(unknown)
