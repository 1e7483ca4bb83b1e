"""Correctness of the run that is measured: equal bits in every company, and the CPU's numbers on a small model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.step_rows import Rows, decode_rows, make_batch, pages_for, reset_states
from pyjet.model.reader import Model
from pyjet.native import ROW_LOGITS, EngineConfig, NativeEngine

KL_TOKENS = 280
KL_LIMIT = 4e-3  # mean, nats: the noise level of Q4_K_M on random tokens, docs/numerics.md


def is_batch_invariant(engine: NativeEngine, position: int, chunk: int, base_slot: int) -> bool:
    """Three rows of a sequence have the same bits alone, one by one, beside 3 and 7 others and beside a prompt chunk.

    All runs start from the same state and write the same keys and values, so each may follow the other.
    """
    others = decode_rows(8, 3, position)
    for watched in (others[0], others[3]):
        rest = [part for part in others if part is not watched]
        prompt = Rows(base_slot - 1, chunk, 0, 8 * pages_for(position + 3), 0)
        companies = ([], rest[:3], rest, [prompt])
        alone = _one_by_one(engine, watched, base_slot)
        if not np.isfinite(alone).all() or alone.std() == 0:
            return False
        for company in companies:
            for order in ([watched, *company], [*company, watched]):
                if _logits(engine, order, watched, base_slot).tobytes() != alone.tobytes():
                    return False
    return True


def _one_by_one(engine: NativeEngine, rows: Rows, base_slot: int) -> np.ndarray:
    reset_states(engine, [rows.slot], base_slot)
    found = []
    for i in range(rows.count):
        row = replace(rows, count=1, position=rows.position + i, flags=ROW_LOGITS)
        found.append(engine.step(make_batch([row], engine.n_vocab)).logits.copy())
    return np.concatenate(found)


def _logits(engine: NativeEngine, parts: Sequence[Rows], watched: Rows, base_slot: int) -> np.ndarray:
    """Logits of one part in a step of all."""
    reset_states(engine, (part.slot for part in parts), base_slot)
    wanted = [replace(part, flags=ROW_LOGITS) if part is watched else part for part in parts]
    return engine.step(make_batch(wanted, engine.n_vocab)).logits.copy()


def kl_between(model: Model, first: EngineConfig, second: EngineConfig) -> float:
    """Mean KL divergence in nats of the first engine from the second, one prompt of random tokens in two chunks."""
    p, q = (_log_softmax(_prompt_logits(model, config)) for config in (second, first))
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def _prompt_logits(model: Model, config: EngineConfig) -> np.ndarray:
    half = KL_TOKENS // 2
    with NativeEngine(model, config) as engine:
        chunks = (make_batch([Rows(0, half, begin, 0, ROW_LOGITS)], engine.n_vocab) for begin in (0, half))
        return np.concatenate([engine.step(chunk).logits.copy() for chunk in chunks])


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x.astype(np.float64) - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
