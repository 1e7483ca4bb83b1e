"""What the options mean for a model: context sizes, device, template, sampling defaults of the file."""

from __future__ import annotations

import io
from typing import Any

import pytest

from pyjet.native import Gpu, NativeError
from pyjet.server import device_choice
from pyjet.server.context_size import ContextPlan, plan_context
from pyjet.server.device_choice import DeviceError, choose_device, device_list
from pyjet.server.loading_bar import LoadingBar
from pyjet.server.model_defaults import apply_sampling_defaults
from pyjet.server.options import ServerOptions
from pyjet.server.startup import Startup, StartupError, make_template
from tests.server.scripted import tiny_model, tiny_tokenizer


def plan(fitting: int | None = None, **options: Any) -> ContextPlan:
    return plan_context(ServerOptions(**options), 8192, fitting)


@pytest.mark.parametrize(
    ("options", "slot", "total"),
    [
        ({}, 8192, 8192),  # auto slots: unified, the trained length
        ({"ctx_size": 4096}, 4096, 4096),
        ({"ctx_size": 1000}, 1024, 1024),
        ({"ctx_size": 1000, "parallel": 2}, 512, 1024),
        ({"ctx_size": 1000, "parallel": 3}, 512, 1536),
        ({"ctx_size": 4096, "parallel": 2, "kv_unified": True}, 4096, 4096),
        ({"ctx_size": 4096, "kv_unified": False}, 1024, 4096),
        ({"kv_unified_per_slot": 1024}, 1024, 4096),
        ({"ctx_size": 8192, "kv_unified_per_slot": 1000}, 1000, 8192),
        ({"parallel": 4}, 2048, 8192),
        ({"ctx_size": 32768, "parallel": 1}, 8192, 8192),
        ({"ctx_size": 32768}, 8192, 32768),
        ({"ctx_size": 65536}, 8192, 32768),  # no more than all slots can use
    ],
)
def test_context_sizes(options: dict[str, Any], slot: int, total: int) -> None:
    result = plan(**options)
    assert (result.n_ctx_slot, result.n_ctx_total) == (slot, total)
    assert bool(result.notes) == (options.get("ctx_size", 0) > 8192)


def test_fit_shrinks_only_what_was_not_set() -> None:
    assert plan(5000).n_ctx_total == 4864
    assert plan(5000, ctx_size=8192).n_ctx_total == 8192
    assert plan(5000, fit=False).n_ctx_total == 8192
    assert plan(9000).n_ctx_total == 8192
    assert plan(0).n_ctx_total == 4096, "not below --fit-ctx"
    assert plan(0, fit_ctx=1024).n_ctx_total == 1024
    shared = plan(5000, parallel=3)
    assert (shared.n_ctx_slot, shared.n_ctx_total) == (1536, 4608), "slots of their own are rounded down"


# device


NO_CUDA: tuple[list[Gpu], str] = ([], "this library was built without the CUDA backend")
NO_DRIVER: tuple[list[Gpu], str] = ([], "no NVIDIA driver was found")
TWO_GPUS: tuple[list[Gpu], str] = ([Gpu(0, "NVIDIA H200", ""), Gpu(1, "", "Tesla V100 is sm_70")], "")


def choose(monkeypatch: pytest.MonkeyPatch, gpus: tuple[list[Gpu], str], **options: Any) -> tuple[str, int, str]:
    monkeypatch.setattr(device_choice, "list_gpus", lambda: gpus)
    choice = choose_device(ServerOptions(**options))
    return choice.device, choice.index, choice.reason


@pytest.mark.parametrize(
    ("gpus", "options", "device", "reason"),
    [
        (NO_CUDA, {}, "cpu", "this library was built without the CUDA backend"),
        (NO_DRIVER, {"device": "auto"}, "cpu", "no NVIDIA driver was found"),
        (TWO_GPUS, {}, "cuda", "NVIDIA H200, CUDA0 of 2"),
        (TWO_GPUS, {"main_gpu": 1}, "cpu", "Tesla V100 is sm_70"),
        (TWO_GPUS, {"main_gpu": 2}, "cpu", "GPU 2 does not exist; there are: CUDA0 (NVIDIA H200), CUDA1 (Tesla"),
        (TWO_GPUS, {"gpu_layers": "0"}, "cpu", "asked for with --gpu-layers 0"),
        (TWO_GPUS, {"device": "cpu"}, "cpu", "asked for with --device cpu"),
        (TWO_GPUS, {"device": "none"}, "cpu", "asked for with --device none"),
        (TWO_GPUS, {"device": "cuda"}, "cuda", "NVIDIA H200"),
        (TWO_GPUS, {"device": "CUDA0", "main_gpu": 1}, "cuda", "NVIDIA H200"),
    ],
)
def test_devices(monkeypatch: pytest.MonkeyPatch, gpus: Any, options: dict[str, Any], device: str, reason: str) -> None:
    found, index, why = choose(monkeypatch, gpus, **options)
    assert (found, index) == (device, 0)
    assert why.startswith(reason)


@pytest.mark.parametrize(
    ("gpus", "device", "text"),
    [
        (NO_CUDA, "cuda", "without the CUDA backend"),
        (NO_DRIVER, "CUDA0", "no NVIDIA driver was found"),
        (TWO_GPUS, "CUDA1", "Tesla V100 is sm_70"),
        (TWO_GPUS, "CUDA2", "GPU 2 does not exist"),
        (TWO_GPUS, "CUDA0,CUDA1", "name one"),
        (TWO_GPUS, "Vulkan0", "unknown device"),
    ],
)
def test_devices_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, gpus: Any, device: str, text: str) -> None:
    with pytest.raises(DeviceError, match=text) as caught:
        choose(monkeypatch, gpus, device=device)
    assert device in str(caught.value)


@pytest.mark.parametrize("kind", ["auto", "cuda"])
def test_a_library_that_is_missing_is_not_taken_for_a_missing_gpu(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def missing() -> tuple[list[Gpu], str]:
        raise NativeError(-1, "libpyjet.so was not found")

    monkeypatch.setattr(device_choice, "list_gpus", missing)
    for call in (lambda: choose_device(ServerOptions(device=kind)), device_list):
        with pytest.raises(DeviceError, match="was not found"):
            call()


def test_device_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice, "list_gpus", lambda: NO_DRIVER)
    assert device_list() == "Available devices:\n  (none)\nNo GPU: no NVIDIA driver was found\n"
    monkeypatch.setattr(device_choice, "list_gpus", lambda: TWO_GPUS)
    assert device_list() == ("Available devices:\n  CUDA0: NVIDIA H200\n  CUDA1: cannot be used: Tesla V100 is sm_70\n")


# the model file


def test_sampling_defaults_of_the_model() -> None:
    options = ServerOptions(top_k=7, user_set={"top_k"})
    metadata = {
        "general.sampling.top_k": 20,
        "general.sampling.temp": 0.6,
        "general.sampling.penalty_last_n": 32,
        "general.sampling.sequence": "top_k;temperature",
        "general.sampling.mirostat": 2,
        "general.sampling.mirostat_tau": 4.0,
        "general.sampling.xtc_probability": 0.25,
        "general.sampling.penalty_repeat": 0.0,
        "general.sampling.min_p": "warm",
        "general.sampling.top_p": [1],
    }
    notes = apply_sampling_defaults(options, metadata)
    assert (options.top_k, options.temp, options.repeat_last_n) == (7, 0.6, 32)
    assert options.samplers == ["top_k", "temperature"] and options.top_p == 0.95
    assert (options.mirostat, options.mirostat_ent, options.xtc_probability) == (2, 4.0, 0.25)
    assert options.repeat_penalty == 1.0
    assert len(notes) == 9 and sum("ignored" in note for note in notes) == 3


def test_unusable_numbers_of_the_model_are_ignored() -> None:
    options = ServerOptions()
    metadata = {"penalty_repeat": -1.0, "mirostat": 3, "penalty_last_n": -1}
    notes = apply_sampling_defaults(options, {f"general.sampling.{key}": value for key, value in metadata.items()})
    assert (options.repeat_penalty, options.mirostat) == (1.0, 0)
    assert options.repeat_last_n == 0 and sum("ignored" in note for note in notes) == 2


def test_templates() -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    assert make_template(ServerOptions(), model, tokenizer).source == model.metadata["tokenizer.chat_template"]
    assert "{{" in make_template(ServerOptions(chat_template="{{ bos_token }}x"), model, tokenizer).source
    assert "USER: " in make_template(ServerOptions(chat_template="vicuna"), model, tokenizer).source
    with pytest.raises(StartupError, match="chat template"):
        make_template(ServerOptions(chat_template="{% if"), model, tokenizer)
    with pytest.raises(StartupError, match="--jinja"):
        make_template(ServerOptions(chat_template="{{ x }}", jinja=False), model, tokenizer)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"model": "/no/such.gguf"}, "/no/such.gguf"),
        ({"rope_freq_base": 5.0}, "--rope-freq-base 5"),
        ({"device": "Metal"}, "unknown device"),
    ],
)
def test_starts_that_fail(options: dict[str, Any], text: str) -> None:
    startup = Startup(ServerOptions(**options))
    with pytest.raises(StartupError, match=text):
        startup.load()
    startup.close()


# progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_loading_bar_on_a_terminal_only() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        bar = LoadingBar(stream)
        bar("weights", 1, 2)
        bar.clear()
        bar.clear()
    assert "weights" in terminal.getvalue() and " 50%" in terminal.getvalue()
    assert terminal.getvalue().count("\033[K") == 1
    assert pipe.getvalue() == ""
