"""Steps made of rows at chosen positions, over pages and states that hold what a real prompt left there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pyjet.native import NO_DRAFTS, ROW_ARGMAX, ROW_SAMPLE, SAMPLE_DTYPE, SEQ_DTYPE, SEQ_RESET, NativeEngine, StepBatch

PAGE_TOKENS = 64
FILL_TOKENS = 2048  # of a prompt whose pages are copied to all others
# A pj_sample with the server's defaults.
DEFAULT_SAMPLE = np.array([(0, 0.95, 0.05, 0.8, 1.0, 0.0, 0.0, 40, 0, 0, 0, 0, 0, 0, 0)], SAMPLE_DTYPE)


@dataclass(frozen=True)
class Rows:
    """`count` rows of one sequence from `position` on. It owns the pages from `first_page`."""

    slot: int
    count: int
    position: int
    first_page: int
    flags: int = ROW_ARGMAX  # of every row; 0: a part of a prompt, of which nothing is wanted yet

    @property
    def n_pages(self) -> int:
        return pages_for(self.position + self.count)

    @property
    def tokens(self) -> np.ndarray:
        """Different ones for every slot and position, the same in every step."""
        at = self.position + np.arange(self.count, dtype=np.int64)
        return at * 7919 + self.slot * 104_729 + 100


def pages_for(n_tokens: int) -> int:
    return -(-n_tokens // PAGE_TOKENS)


def decode_rows(n_seqs: int, each: int, position: int, flags: int = ROW_ARGMAX) -> list[Rows]:
    """`each` rows of n_seqs sequences at one position, in slots 0, 1, ..."""
    size = pages_for(position + each)
    return [Rows(slot, each, position, slot * size, flags) for slot in range(n_seqs)]


def make_batch(parts: Sequence[Rows], n_vocab: int) -> StepBatch:
    """One step of all parts, in this order."""
    counts = [part.count for part in parts]
    begins = np.cumsum([0, *counts])
    pages = np.cumsum([0, *(part.n_pages for part in parts)])
    seqs = np.zeros(len(parts), SEQ_DTYPE)
    for i, part in enumerate(parts):
        reset = SEQ_RESET if part.position == 0 else 0
        seqs[i] = (part.slot, begins[i], part.count, 0, 0, pages[i], part.n_pages, reset, *NO_DRAFTS)
    return StepBatch(
        (np.concatenate([part.tokens for part in parts]) % (n_vocab - 1)).astype(np.int32),
        np.concatenate([np.arange(part.count, dtype=np.int32) + part.position for part in parts]),
        np.repeat(np.arange(len(parts), dtype=np.int32), counts),
        np.repeat(np.array([part.flags for part in parts], np.uint32), counts),
        seqs,
        np.concatenate([np.arange(part.n_pages, dtype=np.int32) + part.first_page for part in parts]),
        np.repeat(DEFAULT_SAMPLE, sum(part.count for part in parts if part.flags & ROW_SAMPLE)),
    )


def fill(engine: NativeEngine, chunk: int, base_slot: int) -> None:
    """Read a prompt, copy its pages to all others and leave its state in base_slot."""
    n_pages = engine.config.n_pages
    n_tokens = min(FILL_TOKENS, n_pages * PAGE_TOKENS)
    for position in range(0, n_tokens, chunk):
        count = min(chunk, n_tokens - position)
        engine.step(make_batch([Rows(base_slot, count, position, 0, 0)], engine.n_vocab))
    filled = pages_for(n_tokens)
    for first in range(filled, n_pages, filled):
        targets = np.arange(first, min(first + filled, n_pages), dtype=np.int32)
        engine.pages_copy(targets - first, targets)


def reset_states(engine: NativeEngine, slots: Iterable[int], base_slot: int) -> None:
    """Every slot continues from the state that `fill` left."""
    for slot in slots:
        engine.state_copy(base_slot, slot)


def median_ms(engine: NativeEngine, parts: Sequence[Rows], repeat: int) -> float:
    """Median milliseconds of a step, host work of the library included."""
    batch = make_batch(parts, engine.n_vocab)
    engine.step(batch)
    return float(np.median([engine.step(batch).step_us for _ in range(repeat)])) / 1e3


def prefill_tok_s(engine: NativeEngine, n_tokens: int, chunk: int, slot: int) -> float:
    """Tokens a second of one prompt from position 0 to its last row's best token."""
    us = 0.0
    for position in range(0, n_tokens, chunk):
        count = min(chunk, n_tokens - position)
        batch = make_batch([Rows(slot, count, position, 0, 0)], engine.n_vocab)
        if position + count == n_tokens:
            batch.row_flags[-1] = ROW_ARGMAX
        us += engine.step(batch).step_us
    return n_tokens / us * 1e6
