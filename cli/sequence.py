"""One sequence on the native engine, without a scheduler: for measurements and comparisons."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.model.reader import Model
from pyjet.native import (
    ROW_ARGMAX,
    ROW_LOGITS,
    SEQ_DTYPE,
    SEQ_RESET,
    EngineConfig,
    NativeEngine,
    StepBatch,
    StepResult,
)
from pyjet.native.config import Device, KvType

PAGE_TOKENS = 64


def open_engine(
    model: Model,
    n_ctx: int,
    *,
    max_rows: int = 512,
    kv_type: KvType = "f16",
    n_threads: int = 0,
    device: Device = "cpu",
) -> NativeEngine:
    """An engine with room for one sequence of n_ctx tokens.

    kv_type: "f16" or "q8_0" for keys and values. n_threads: 0 = all hardware threads.
    Raises NativeError when the library refuses the model or has no such device.
    """
    config = EngineConfig(
        device=device,
        n_threads=n_threads,
        page_tokens=PAGE_TOKENS,
        n_pages=pages_for(n_ctx),
        n_state_slots=1,
        max_rows=max_rows,
        max_seqs=1,
        kv_type_k=kv_type,
        kv_type_v=kv_type,
    )
    return NativeEngine(model, config)


def pages_for(n_ctx: int) -> int:
    """KV pages that n_ctx tokens need."""
    return -(-n_ctx // PAGE_TOKENS)


class Sequence:
    """Appends tokens to one sequence, in steps of at most max_rows rows. Owns page i for its i-th page."""

    def __init__(self, engine: NativeEngine, max_rows: int):
        self._engine, self._max_rows = engine, max_rows
        self.position = 0

    def append(self, tokens: npt.NDArray[np.int32], *, all_logits: bool = False) -> npt.NDArray[np.float32]:
        """Run tokens; returns logits of every row [n, n_vocab] or of the last row [1, n_vocab]."""
        results = []
        for start in range(0, len(tokens), self._max_rows):
            chunk = tokens[start : start + self._max_rows]
            last = start + len(chunk) == len(tokens)
            flags = np.full(len(chunk), ROW_LOGITS if all_logits else 0, dtype=np.uint32)
            if last:
                flags[-1] = ROW_LOGITS
            results.append(self._step(chunk, flags).logits.copy())
        return np.concatenate(results)

    def next_token(self, token: int) -> int:
        """Run one token and return the best next one."""
        flags = np.array([ROW_ARGMAX], dtype=np.uint32)
        return int(self._step(np.array([token], dtype=np.int32), flags).argmax[0])

    def _step(self, tokens: npt.NDArray[np.int32], flags: npt.NDArray[np.uint32]) -> StepResult:
        count, end = len(tokens), self.position + len(tokens)
        seqs = np.zeros(1, dtype=SEQ_DTYPE)
        seqs["n_rows"], seqs["n_pages"] = count, pages_for(end)
        seqs["draft_sample"] = -1
        seqs["flags"] = SEQ_RESET if self.position == 0 else 0
        batch = StepBatch(
            tokens=np.ascontiguousarray(tokens, dtype=np.int32),
            positions=np.arange(self.position, end, dtype=np.int32),
            row_seq=np.zeros(count, dtype=np.int32),
            row_flags=flags,
            seqs=seqs,
            page_table=np.arange(pages_for(end), dtype=np.int32),
        )
        self.position = end
        return self._engine.step(batch)
