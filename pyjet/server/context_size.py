"""How long the context is: for one slot and for all together."""

from __future__ import annotations

from dataclasses import dataclass

from pyjet.server.options import ServerOptions

_STEP = 256  # llama-server rounds contexts up to this many tokens


@dataclass(frozen=True)
class ContextPlan:
    """Tokens. ``notes`` are for the log: what was limited and why."""

    n_ctx_slot: int
    n_ctx_total: int
    notes: tuple[str, ...] = ()


def plan_context(options: ServerOptions, trained: int, fitting: int | None = None) -> ContextPlan:
    """Context sizes by llama-server's rules.

    ``trained``: the model's own context length. ``fitting``: tokens that memory has room for; None: enough. Only a
    context that the user did not set is shrunk to it (``--fit``), and not below ``--fit-ctx``.
    """
    n_slots, wanted = options.n_slots, _wanted(options, trained)
    if fitting is None or options.ctx_size or not options.fit:
        fitting = wanted
    shrinks = fitting < wanted
    total = _round_up(max(fitting // _STEP * _STEP, min(options.fit_ctx, wanted)) if shrinks else wanted)
    if options.unified:
        slot = min(total, options.kv_unified_per_slot or total)
    else:
        slot = max(total // n_slots // _STEP * _STEP, _STEP) if shrinks else _round_up(total // n_slots)
        total = slot * n_slots
    return _within_training(options, trained, slot, total)


def _within_training(options: ServerOptions, trained: int, slot: int, total: int) -> ContextPlan:
    """A slot is never longer than what the model was trained with, the pool never more than all slots can use."""
    notes = []
    if slot > trained:
        notes.append(f"a slot has {trained} tokens instead of {slot}: the model was not trained for more")
        slot = trained
        total = min(total, slot * options.n_slots) if options.unified else slot * options.n_slots
    return ContextPlan(slot, total, tuple(notes))


def _wanted(options: ServerOptions, trained: int) -> int:
    if options.ctx_size:
        return options.ctx_size
    if options.kv_unified_per_slot:
        return options.kv_unified_per_slot * options.n_slots
    return trained


def _round_up(tokens: int) -> int:
    return -(-tokens // _STEP) * _STEP
