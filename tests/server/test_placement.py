"""Which device runs a model and how large its context becomes: looked at before anything is loaded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pyjet.native import Gpu, MemoryPlan, NativeError, memory_plan
from pyjet.server import device_choice, placement
from pyjet.server.device_choice import DeviceError
from pyjet.server.option_parser import parse
from pyjet.server.option_table import BY_SPELLING
from pyjet.server.options import ServerOptions
from pyjet.server.placement import Placement, place
from pyjet.server.startup import Startup, StartupError
from tests.server.scripted import tiny_model

MIB, GIB = 1 << 20, 1 << 30
TRAINED = 32768


def card(free: int, page_bytes: int = MIB) -> MemoryPlan:
    """16 GiB of weights and 1 GiB beside them on a card of 24 GiB."""
    return MemoryPlan("NVIDIA RTX 3090", 16 * GIB, page_bytes, 0, 256 * MIB, 672 * MIB, 96 * MIB, free, 24 * GIB)


class Card:
    """A GPU that answers every plan with its own sizes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: MemoryPlan | NativeError) -> None:
        self.asked = 0
        self._answer = answer
        monkeypatch.setattr(device_choice, "list_gpus", lambda: ([Gpu(0, "NVIDIA RTX 3090", "")], ""))
        monkeypatch.setattr(placement, "probe_memory_plan", self.plan)

    def plan(self, _path: str, _overrides: dict[str, Any], config: Any) -> MemoryPlan:
        self.asked += 1
        if isinstance(self._answer, NativeError):
            raise self._answer
        return self._answer.with_pages(config.n_pages)


def placed(**options: Any) -> Placement:
    return place(ServerOptions(**options), tiny_model())


def test_a_model_that_fits_runs_on_the_gpu_with_its_whole_context(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, card(23 * GIB))
    found = placed()
    assert (found.choice.device, found.settings.device, found.settings.n_ctx_total) == ("cuda", "cuda", TRAINED)
    assert found.memory.kv_bytes == TRAINED // 64 * MIB and not found.notes


def test_fit_shrinks_the_context_to_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, card(23 * GIB, page_bytes=16 * MIB))  # 512 pages of 16 MiB are wanted, 5 GiB are left
    found = placed()
    assert found.settings.n_pages == found.memory.n_pages == 5 * 1024 // 16
    assert found.memory.fits(1024 * MIB) and not found.memory.fits(1024 * MIB + 256 * MIB)
    assert found.notes == (
        "the context is 20480 tokens instead of 32768: more does not fit into the 23.00 GiB that are free on "
        "NVIDIA RTX 3090, of which --fit-target keeps 1.00 GiB",
    )
    assert placed(fit_target=[0]).settings.n_pages == 6 * 1024 // 16


def test_a_context_that_was_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, card(23 * GIB, page_bytes=16 * MIB))
    found = placed(ctx_size=24576)  # into the margin, which holds for unset contexts only
    assert (found.choice.device, found.settings.n_ctx_total, found.notes) == ("cuda", 24576, ())


@pytest.mark.parametrize("options", [{"ctx_size": 32768}, {"fit": False}])
def test_automatic_falls_back_to_the_cpu_when_the_card_is_too_small(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    Card(monkeypatch, card(23 * GIB, page_bytes=16 * MIB))
    found = placed(**options)
    assert (found.choice.device, found.settings.device, found.settings.n_ctx_total) == ("cpu", "cpu", TRAINED)
    assert found.choice.reason == (
        "not on NVIDIA RTX 3090, CUDA0 of 1: too little memory: weights 16.00 GiB + KV pool 8.00 GiB + states "
        "256.0 MiB + workspace 672.0 MiB + driver reserve 96.0 MiB = 25.00 GiB; 23.00 GiB of 24.00 GiB free on NVIDIA "
        "RTX 3090; use a smaller --ctx-size, fewer slots (--parallel) or a smaller model"
    )
    with pytest.raises(DeviceError, match=r'--device "cuda": too little memory: .* use a smaller --ctx-size'):
        placed(device="cuda", **options)


def test_weights_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, card(12 * GIB))
    assert placed().choice.device == "cpu"
    with pytest.raises(DeviceError, match=r"12.00 GiB of 24.00 GiB free"):
        placed(device="cuda")


@pytest.mark.parametrize("kind", [2, 4])
def test_a_model_or_card_that_the_library_refuses(monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    text = "the model's attention head width is 128, the CUDA backend needs 256; use the CPU device"
    gpu = Card(monkeypatch, NativeError(kind, text))
    assert placed().choice.reason == f"not on NVIDIA RTX 3090, CUDA0 of 1: {text}"
    with pytest.raises(DeviceError, match='--device "CUDA0": the model\'s attention head width'):
        placed(device="CUDA0")
    assert gpu.asked == 2


def test_the_cpu_is_not_asked_about_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Card(monkeypatch, card(23 * GIB))
    found = placed(device="cpu")
    assert (found.choice.device, gpu.asked) == ("cpu", 0)
    assert found.memory.device_name.startswith("CPU") and found.memory.n_pages == found.settings.n_pages


def test_options_of_the_prefix_cache_reach_the_engine() -> None:
    settings = placed(
        device="cpu", parallel=3, cache_ram=100, ctx_checkpoints=4, checkpoint_min_step=512,
        slot_prompt_similarity=0.25, step_budget=1.5, step_patience=30,
    ).settings  # fmt: skip
    assert (settings.cache_ram, settings.max_checkpoints, settings.checkpoint_step) == (100, 12, 512)
    assert (settings.slot_similarity, settings.step_budget, settings.patience_seconds) == (0.25, 1.5, 30)


@pytest.mark.parametrize(("text", "seconds"), [("1", 1), ("0", math.inf), ("-1", math.inf)])
def test_patience_is_seconds_or_endless(text: str, seconds: float) -> None:
    chosen = parse(["--step-patience", text], {}).options.step_patience
    assert placed(device="cpu", step_patience=chosen).settings.patience_seconds == seconds
    assert "-1 or 0: never" in BY_SPELLING["--step-patience"].help


def test_host_memory_that_is_short_shrinks_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    real = memory_plan(tiny_model(), placed(device="cpu").settings.engine_config())
    for free, tokens, warns in ((real.fixed_bytes + 1024 * MIB + 128 * real.page_bytes, 8192, False), (1, 4096, True)):
        monkeypatch.setattr(
            placement,
            "memory_plan",
            lambda _model, config, free=free: MemoryPlan(
                **{**real.__dict__, "free_bytes": free, "n_pages": config.n_pages}
            ),
        )
        found = placed(device="cpu")
        assert found.settings.n_ctx_total == tokens and "instead of 32768" in found.notes[0]
        assert ("too little memory" in found.notes[-1]) == warns


def test_a_start_on_a_card_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    Card(monkeypatch, card(12 * GIB))
    startup = Startup(ServerOptions(device="cuda"))
    with pytest.raises(StartupError, match="too little memory"):
        startup.load()
    startup.close()
