"""What drafts of the MTP block add to a step: the same rows with two drafts wanted of each sequence, and without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench.step_rows import decode_rows, make_batch
from pyjet.engine.speculation_settings import DRAFT_BLOCK
from pyjet.native import NativeEngine, StepBatch

N_DRAFTS = 2
MAX_BLOCKS = 64  # PJ_MAX_DRAFT_BLOCKS
SEQUENCES = (1, 4, 8)  # each with 1 + N_DRAFTS rows


def verify_batch(engine: NativeEngine, n_seqs: int, position: int, draft_vocab: int, *, drafts: bool) -> StepBatch:
    """Each sequence verifies two drafts; with ``drafts`` the MTP block makes the next two as well.

    Its head then has all the blocks of further token ids that a step may name.
    """
    batch = make_batch(decode_rows(n_seqs, 1 + N_DRAFTS, position), engine.n_vocab)
    batch.seqs["n_spec"] = N_DRAFTS
    if not drafts:
        return batch
    batch.seqs["n_verify"] = batch.seqs["n_draft"] = N_DRAFTS
    following = np.roll(batch.tokens, -1)
    following[batch.seqs["row_begin"] + N_DRAFTS] = -1
    return replace(batch, row_next=following, draft_blocks=blocks_above(draft_vocab, engine.n_vocab))


def blocks_above(draft_vocab: int, n_vocab: int) -> np.ndarray:
    """int32[n]: the blocks right above the draft head's lowest ids, as many as there are and a step may name."""
    if draft_vocab <= 0:
        return np.empty(0, np.int32)
    first, end = draft_vocab // DRAFT_BLOCK, n_vocab // DRAFT_BLOCK
    return np.arange(first, max(first, min(end, first + MAX_BLOCKS)), dtype=np.int32)


def measure(engine: NativeEngine, position: int, draft_vocab: int, repeat: int) -> dict[str, float]:
    """Milliseconds of both by rows, and the largest share that drafts add."""
    figures: dict[str, float] = {}
    shares = []
    for n_seqs in SEQUENCES:
        times = [
            median_ms(engine, verify_batch(engine, n_seqs, position, draft_vocab, drafts=drafts), repeat)
            for drafts in (False, True)
        ]
        n_rows = n_seqs * (1 + N_DRAFTS)
        figures[f"ms_{n_rows}_rows_verified"], figures[f"ms_{n_rows}_rows_with_drafts"] = (round(t, 4) for t in times)
        shares.append(times[1] / times[0] - 1)
    return {**figures, "draft_overhead_fraction": round(max(shares), 4)}


def median_ms(engine: NativeEngine, batch: StepBatch, repeat: int) -> float:
    """Median milliseconds of the step. It may run again and again: no draft of it is ever accepted."""
    engine.step(batch)
    return float(np.median([engine.step(batch).step_us for _ in range(repeat)])) / 1e3
