"""Where a model runs and how large its context is: the device, looked at first, and its memory plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pyjet.engine.settings import EngineSettings
from pyjet.model.reader import Model
from pyjet.native import MemoryPlan, NativeError, memory_plan, probe_memory_plan
from pyjet.native.config import ERR_MEMORY
from pyjet.native.memory import MIB, human
from pyjet.server.context_size import ContextPlan, plan_context
from pyjet.server.device_choice import DeviceChoice, DeviceError, choose_device, is_automatic
from pyjet.server.options import ServerOptions
from pyjet.server.speculation import speculation_settings


@dataclass(frozen=True)
class Placement:
    """``notes`` are warnings for the log: what was limited and why."""

    choice: DeviceChoice
    settings: EngineSettings
    memory: MemoryPlan
    notes: tuple[str, ...]


def place(options: ServerOptions, model: Model) -> Placement:
    """The device and sizes for these options, nothing loaded yet.

    ``--device auto`` takes the GPU if it can run the model and has the memory, else the CPU; the choice's reason says
    why. Raises DeviceError when a device that was asked for cannot, NativeError when the CPU cannot either.
    """
    choice = choose_device(options)
    if choice.device == "cpu":
        return _sized(options, model, choice)
    try:
        return _sized(options, model, choice)
    except NativeError as error:
        if not is_automatic(options):
            raise DeviceError(f'--device "{options.device}": {error.message}') from None
        return _sized(options, model, DeviceChoice("cpu", 0, f"not on {choice.reason}: {error.message}"))


def _sized(options: ServerOptions, model: Model, choice: DeviceChoice) -> Placement:
    trained = model.hyperparams.n_ctx_train
    context = plan_context(options, trained)
    settings = make_settings(options, model, choice, context)
    memory, margin = _plan(settings, model), _margin(options, choice.index)
    if not options.ctx_size and options.fit and not memory.fits(margin):
        fitting = memory.pages_that_fit(margin) * settings.page_tokens
        wanted, context = context, plan_context(options, trained, fitting)
        settings = make_settings(options, model, choice, context)
        memory = memory.with_pages(settings.n_pages)
        if context.n_ctx_total < wanted.n_ctx_total:
            context = _noted(context, _shrunk(wanted, context, memory, margin))
    if not memory.fits():
        if choice.device == "cuda":
            raise NativeError(ERR_MEMORY, _too_little(memory))
        context = _noted(context, _too_little(memory))  # an estimate: swap and the system's caches may help
    return Placement(choice, settings, memory, context.notes)


def make_settings(options: ServerOptions, model: Model, choice: DeviceChoice, context: ContextPlan) -> EngineSettings:
    more: dict[str, Any] = {"kv_type_k": options.cache_type_k, "kv_type_v": options.cache_type_v}
    return EngineSettings(
        model_path=model.path,
        n_slots=options.n_slots,
        n_ctx_slot=context.n_ctx_slot,
        n_ctx_total=context.n_ctx_total,
        n_ubatch=min(options.ubatch_size, options.batch_size),
        device=choice.device,
        device_index=choice.index,
        isa=options.cpu_isa,  # type: ignore[arg-type]  # the option table allows these words only
        n_threads=max(0, options.threads),
        cache_ram=options.cache_ram,
        max_checkpoints=options.ctx_checkpoints * options.n_slots,
        checkpoint_step=options.checkpoint_min_step,
        slot_similarity=options.slot_prompt_similarity,
        step_budget=options.step_budget,
        patience_seconds=math.inf if options.step_patience <= 0 else options.step_patience,
        speculation=speculation_settings(options),
        overrides=options.override_kv,
        check_tensors=options.check_tensors,
        **more,
    )


def _plan(settings: EngineSettings, model: Model) -> MemoryPlan:
    config = settings.engine_config()
    if settings.device == "cpu":
        return memory_plan(model, config)
    return probe_memory_plan(settings.model_path, settings.overrides, config)


def _margin(options: ServerOptions, index: int) -> int:
    """Bytes that ``--fit-target`` keeps free on a device; the last value holds for all further ones."""
    targets = options.fit_target or [0]
    return targets[min(index, len(targets) - 1)] * MIB


def _noted(context: ContextPlan, note: str) -> ContextPlan:
    return ContextPlan(context.n_ctx_slot, context.n_ctx_total, (*context.notes, note))


def _shrunk(wanted: ContextPlan, context: ContextPlan, memory: MemoryPlan, margin: int) -> str:
    return (
        f"the context is {context.n_ctx_total} tokens instead of {wanted.n_ctx_total}: more does not fit into the "
        f"{human(memory.free_bytes)} that are free on {memory.device_name}, of which --fit-target keeps "
        f"{human(margin)}"
    )


def _too_little(memory: MemoryPlan) -> str:
    return f"too little memory: {memory}; use a smaller --ctx-size, fewer slots (--parallel) or a smaller model"
