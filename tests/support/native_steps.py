"""Sequences of native tests: each knows its slot, pages and position, several run in one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pyjet.native import ROW_ARGMAX, ROW_HIDDEN, ROW_LOGITS, SEQ_DTYPE, SEQ_RESET, NativeEngine, StepBatch

ALL_OUTPUTS = ROW_LOGITS | ROW_ARGMAX | ROW_HIDDEN


@dataclass
class Part:
    """What one sequence does in a step: rows for ``tokens`` at ``start``, the last ``n_spec`` speculative."""

    tokens: Sequence[int]
    start: int = 0
    slot: int = 0
    pages: Sequence[int] = (0,)
    n_spec: int = 0
    n_accept: int = 0
    flags: int = ROW_LOGITS
    reset: bool | None = None  # None: at position 0
    n_verify: int = 0
    n_draft: int = 0

    @property
    def seq_flags(self) -> int:
        return SEQ_RESET if (self.start == 0 if self.reset is None else self.reset) else 0


def make_batch(*parts: Part) -> StepBatch:
    """The StepBatch of several sequences, in this order."""
    seqs = np.zeros(len(parts), SEQ_DTYPE)
    row = entry = 0
    for i, part in enumerate(parts):
        n = len(part.tokens)
        seqs[i] = (part.slot, row, n, part.n_spec, part.n_accept, entry, len(part.pages), part.seq_flags,
                   part.n_verify, part.n_draft, -1, 0)  # fmt: skip
        row, entry = row + n, entry + len(part.pages)
    counts = [len(part.tokens) for part in parts]
    return StepBatch(
        np.concatenate([np.asarray(part.tokens, np.int32) for part in parts]),
        np.concatenate([np.arange(part.start, part.start + n, dtype=np.int32) for part, n in zip(parts, counts)]),
        np.repeat(np.arange(len(parts), dtype=np.int32), counts),
        np.repeat(np.array([part.flags for part in parts], np.uint32), counts),
        seqs,
        np.concatenate([np.asarray(part.pages, np.int32) for part in parts]),
    )


@dataclass
class Run:
    """A sequence that walks through its tokens and keeps the logits of every row."""

    tokens: Sequence[int]
    slot: int
    pages: Sequence[int]
    position: int = 0
    logits: list[np.ndarray] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.tokens) - self.position

    def part(self, n: int) -> Part:
        tokens = self.tokens[self.position : self.position + n]
        part = Part(tokens, self.position, self.slot, self.pages)
        self.position += len(tokens)
        return part

    @property
    def all_logits(self) -> np.ndarray:
        """float32[T, n_vocab]"""
        return np.concatenate(self.logits)


def step_runs(engine: NativeEngine, parts: Iterable[tuple[Run, int]]) -> None:
    """One step: each run advances by its number of rows."""
    pairs = [(run, run.part(n)) for run, n in parts]
    logits = engine.step(make_batch(*(part for _, part in pairs))).logits
    row = 0
    for run, part in pairs:
        run.logits.append(logits[row : row + len(part.tokens)].copy())
        row += len(part.tokens)


def run_alone(engine: NativeEngine, tokens: Sequence[int], chunk: int, *, slot: int = 0,
              pages: Sequence[int] | None = None) -> np.ndarray:  # fmt: skip
    """Logits float32[T, n_vocab] of one sequence in chunks of ``chunk`` rows."""
    run = Run(tokens, slot, pages_for(engine, len(tokens)) if pages is None else pages)
    while run.left:
        step_runs(engine, [(run, min(chunk, run.left))])
    return run.all_logits


def pages_for(engine: NativeEngine, n_tokens: int, first: int = 0) -> range:
    """The pages first, first + 1, ... that hold n_tokens."""
    return range(first, first + -(-n_tokens // engine.config.page_tokens))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shape and equal bits: 0.0 and -0.0 differ, equal NaNs do not."""
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
