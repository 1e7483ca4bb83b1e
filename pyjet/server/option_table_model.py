"""Options for the model, the context and the device."""

from __future__ import annotations

from typing import Any

from pyjet.server import option_table_values as values
from pyjet.server.option_table_row import Option, Section, missing, row
from pyjet.server.options import ServerOptions

_COMMON = Section.COMMON
_CACHE_KERNELS = ("f16", "q8_0")
_MOST_SLOTS = 64


def _cache_type(value: Any) -> str | None:
    if value in _CACHE_KERNELS:
        return None
    return f'KV type "{value}" has no kernel; use {" or ".join(_CACHE_KERNELS)}'


def _slots(value: Any) -> str | None:
    if value <= _MOST_SLOTS:
        return None
    return f"{value} slots are more than this version runs at the same time; use at most {_MOST_SLOTS}, others queue"


def _split_mode(value: Any) -> str | None:
    if value in ("none", "layer"):
        return None
    return f'split mode "{value}" needs several devices per layer; use -sm none -mg N'


def _tensor_split(value: Any) -> str | None:
    if sum(share > 0 for share in value) <= 1:
        return None
    return "weights cannot be spread over several devices; use -sm none -mg N"


def _load_mode(value: Any) -> str | None:
    if value in ("auto", "none", "mmap"):
        return None
    return f'load mode "{value}" falls back to mmap: weights are repacked into memory of their own'


def _set_override(options: ServerOptions, value: dict[str, Any]) -> None:
    options.override_kv.update(value)


MODEL_OPTIONS: list[Option] = [
    row("-t --threads", "CPU threads for generation; 0 or less: all hardware threads", field="threads",
        value="N", env="THREADS", convert=values.to_int, section=_COMMON),
    row("-tb --threads-batch", "CPU threads for prompts (prompts and generation share their steps)",
        field="threads_batch", value="N", convert=values.to_int, default="same as --threads", section=_COMMON),
    row("-c --ctx-size", "context length in tokens, shared by all slots; 0: the length the model was trained with",
        field="ctx_size", value="N", env="CTX_SIZE", convert=values.int_in(0), section=_COMMON),
    row("-n --predict --n-predict", "tokens to generate when a request does not say; -1: no limit",
        field="n_predict", value="N", env="N_PREDICT", convert=values.int_in(-1), section=_COMMON),
    row("-b --batch-size", "prompt tokens that one request processes between two progress reports",
        field="batch_size", value="N", env="BATCH", convert=values.int_in(1), section=_COMMON),
    row("-ub --ubatch-size", "rows of one step at most", field="ubatch_size", value="N", env="UBATCH",
        convert=values.int_in(1), section=_COMMON),
    row("--keep", "prompt tokens that a context shift keeps; -1: all", field="keep", value="N",
        convert=values.int_in(-1), section=_COMMON),
    row("-fa --flash-attn", "on, off or auto; there is one attention path, results do not change",
        field="flash_attn", value="[on|off|auto]", env="FLASH_ATTN", convert=values.on_off_auto, section=_COMMON),
    row("-e --escape", r"process escapes (\n, \r, \t, \', \", \\) in texts given as options", off="--no-escape",
        field="escape", section=_COMMON),
    row("-ctk --cache-type-k", "type of the keys in the KV cache; here: f16 or q8_0", field="cache_type_k",
        value="TYPE", env="CACHE_TYPE_K", convert=values.one_of(*values.CACHE_TYPES), unavailable=_cache_type,
        section=_COMMON),
    row("-ctv --cache-type-v", "type of the values in the KV cache; here: f16 or q8_0", field="cache_type_v",
        value="TYPE", env="CACHE_TYPE_V", convert=values.one_of(*values.CACHE_TYPES), unavailable=_cache_type,
        section=_COMMON),
    row("-lm --load-mode", "how the model file is read: auto, none, mmap, mlock, mmap+mlock or dio",
        field="load_mode", value="MODE", env="LOAD_MODE",
        convert=values.one_of("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"), ineffective=_load_mode,
        section=_COMMON),
    row("-dev --device", "cpu or none: the CPU; cuda or a name of --list-devices: that GPU; auto: a GPU if it can",
        field="device", value="<dev1,dev2,..>", env="DEVICE", default="auto", section=_COMMON),
    row("--list-devices", "list the devices and exit", action="list-devices", section=_COMMON),
    row("--cpu-isa", "instruction set of the CPU backend: auto, portable, avx2 or avx512_vnni", field="cpu_isa",
        value="NAME", convert=values.one_of("auto", "portable", "avx2", "avx512_vnni"), section=_COMMON),
    row("-ngl --gpu-layers --n-gpu-layers", "0: the CPU; auto, all or a number: the whole model on the GPU",
        field="gpu_layers", value="N", env="N_GPU_LAYERS", convert=values.gpu_layers, section=_COMMON),
    row("-sm --split-mode", "none or layer; one device holds the whole model", field="split_mode",
        value="{none,layer,row,tensor}", env="SPLIT_MODE", convert=values.one_of("none", "layer", "row", "tensor"),
        unavailable=_split_mode, section=_COMMON),
    row("-ts --tensor-split", "share of each GPU; only one may be above 0", field="tensor_split",
        value="N0,N1,N2,...", env="TENSOR_SPLIT", convert=values.float_list, default="unused",
        unavailable=_tensor_split, section=_COMMON),
    row("-mg --main-gpu", "number of the GPU to use", field="main_gpu", value="INDEX", env="MAIN_GPU",
        convert=values.int_in(0), section=_COMMON),
    row("-fit --fit", "shrink a context that was not set to what fits into memory", field="fit", value="[on|off]",
        env="FIT", convert=values.to_bool, default="on", section=_COMMON),
    row("-fitt --fit-target", "memory that --fit leaves free, MiB per device", field="fit_target",
        value="MiB0,MiB1,MiB2,...", env="FIT_TARGET", convert=values.int_list, default="1024", section=_COMMON),
    row("-fitc --fit-ctx", "context below which --fit does not go", field="fit_ctx", value="N", env="FIT_CTX",
        convert=values.int_in(0), section=_COMMON),
    row("--check-tensors", "look for NaN and infinity in all tensors while loading", field="check_tensors",
        section=_COMMON),
    row("--override-kv", "replace model metadata; types: int, float, bool, str", field="override_kv",
        value="KEY=TYPE:VALUE,...", convert=values.override_kv, apply=_set_override, accumulates=True,
        default="none", section=_COMMON),
    row("--lora", "LoRA adapters, separated by commas", field="lora", value="FNAME", convert=values.comma_list,
        unavailable=missing("LoRA adapters are not available in this version: start without them", []),
        accumulates=True, default="none", section=_COMMON),
    row("--lora-scaled", "LoRA adapters with a scale each", field="lora", value="FNAME:SCALE,...",
        convert=values.comma_list,
        unavailable=missing("LoRA adapters are not available in this version: start without them", []),
        accumulates=True, default="none", section=_COMMON),
    row("-m --model", "model file in GGUF format; of a split model the first part", field="model", value="FNAME",
        env="MODEL", default="the built-in model", section=_COMMON),
    row("--offline", "no network access (this server never uses any)", field="offline", env="OFFLINE",
        section=_COMMON),
    row("-np --parallel", "number of slots, requests that run at the same time; -1: four on a unified context",
        field="parallel", value="N", env="N_PARALLEL", convert=values.int_in(-1, 256), unavailable=_slots),
    row("--agents", "another name of --parallel", field="parallel", value="N", convert=values.int_in(-1, 256),
        unavailable=_slots),
    row("--step-budget", "how many times as long as a step that only generates one that also reads prompts may take; "
        "more: prompts are read faster, running answers wait longer", field="step_budget", value="X",
        convert=values.float_above(1)),
    row("--step-patience", "seconds after which a step counts as hung and /health answers 503, or 20 times as long as "
        "the slowest step measured at the start if that is more; -1 or 0: never", field="step_patience", value="N",
        convert=values.int_in(-1)),
    row("-kvu --kv-unified", "each slot may use the whole context", off="-no-kvu --no-kv-unified",
        field="kv_unified", env="KV_UNIFIED", default="on when --parallel is -1"),
    row("--kv-unified-per-slot", "limit of one slot on a unified context; without -c the context is N per slot",
        field="kv_unified_per_slot", value="N", env="KV_UNIFIED_PER_SLOT", convert=values.int_in(0),
        default="unset"),
    row("--context-shift", "drop old tokens when a context is full and go on; the others are read again",
        off="--no-context-shift", field="context_shift", env="CONTEXT_SHIFT"),
    row("--warmup", "an empty run before the server is ready; the engine needs none, so both spellings are the same",
        off="--no-warmup", field="warmup"),
    row("--lora-init-without-apply", "load LoRA adapters with scale 0", field="lora_init_without_apply"),
]  # fmt: skip
