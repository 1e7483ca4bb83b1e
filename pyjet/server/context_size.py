"""How long the context is: for one slot and for all together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyjet.server.options import ServerOptions

if TYPE_CHECKING:
    from pyjet.model.hyperparams import Hyperparams

_STEP = 256  # llama-server rounds contexts up to this many tokens
_MIB = 1024 * 1024
_BYTES_PER_VALUE = {"f16": 2.0, "q8_0": 34 / 32}


@dataclass(frozen=True)
class ContextPlan:
    """Tokens. ``notes`` are for the log: what was limited and why."""

    n_ctx_slot: int
    n_ctx_total: int
    notes: tuple[str, ...] = ()


def plan_context(options: ServerOptions, hyperparams: Hyperparams, free_bytes: int | None) -> ContextPlan:
    """Context sizes by llama-server's rules.

    ``free_bytes``: memory for the KV cache after the weights; None if unknown. Only a context that the user did
    not set is shrunk to it (``--fit``).
    """
    n_slots, trained = options.n_slots, hyperparams.n_ctx_train
    total, notes = _wanted(options, trained), []
    if not options.ctx_size and options.fit and free_bytes is not None:
        fitting = _fitting_tokens(options, hyperparams, free_bytes)
        if fitting < total:
            total = max(fitting, min(options.fit_ctx, total))
            notes.append(f"the context is {total} tokens instead of {trained}: more does not fit into memory")
    total = _round_up(total)
    if options.unified:
        slot = min(total, options.kv_unified_per_slot or total)
    else:
        slot = _round_up(total // n_slots)
        total = slot * n_slots
    if slot > trained:
        notes.append(f"a slot has {trained} tokens instead of {slot}: the model was not trained for more")
        slot = trained
        total = total if options.unified else slot * n_slots
    return ContextPlan(slot, total, tuple(notes))


def kv_bytes_per_token(options: ServerOptions, hyperparams: Hyperparams) -> float:
    """Bytes that one token takes in the KV caches of all attention blocks."""
    values = hyperparams.n_head_kv * hyperparams.head_dim
    per_value = _BYTES_PER_VALUE[options.cache_type_k] + _BYTES_PER_VALUE[options.cache_type_v]
    return sum(hyperparams.block_is_attention) * values * per_value


def free_host_bytes(options: ServerOptions, weight_bytes: int) -> int | None:
    """Host memory left for the KV cache after weights and the margin of ``--fit-target``; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = {line.partition(":")[0]: line.split()[1] for line in lines if len(line.split()) > 1}
    if "MemAvailable" not in sizes:
        return None
    margin = (options.fit_target[0] if options.fit_target else 0) * _MIB
    return max(0, int(sizes["MemAvailable"]) * 1024 - weight_bytes - margin)


def _wanted(options: ServerOptions, trained: int) -> int:
    if options.ctx_size:
        return options.ctx_size
    if options.kv_unified_per_slot:
        return options.kv_unified_per_slot * options.n_slots
    return trained


def _fitting_tokens(options: ServerOptions, hyperparams: Hyperparams, free_bytes: int) -> int:
    per_token = kv_bytes_per_token(options, hyperparams)
    tokens = int(free_bytes / per_token) if per_token else 1 << 31
    return tokens // _STEP * _STEP


def _round_up(tokens: int) -> int:
    return -(-tokens // _STEP) * _STEP
