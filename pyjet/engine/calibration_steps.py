"""The steps that are measured at load. Their rows are a prompt of arbitrary tokens in slot 0 and the first pages.

Whoever comes next resets the slot and writes its pages before it reads them.
"""

from __future__ import annotations

import numpy as np

from pyjet.engine.client import EngineLimits
from pyjet.engine.draft_costs import RESTS
from pyjet.native.step import NO_DRAFTS, ROW_ARGMAX, SEQ_DTYPE, SEQ_RESET, Int32Array, StepBatch, UInt32Array


def prompt_step(n_rows: int, limits: EngineLimits) -> StepBatch:
    """Rows of a prompt, and a token is wanted from the last one, as of a decoding row."""
    flags = np.zeros(n_rows, np.uint32)
    flags[-1] = ROW_ARGMAX
    return _step(limits, flags, 0, NO_DRAFTS, 0)


def verifying_step(n_rows: int, n_draft: int, limits: EngineLimits) -> StepBatch:
    """A token is wanted from every row, as of drafts that are verified, and ``n_draft`` drafts behind them.

    RESTS: the MTP block has no part in it.
    """
    flags = np.full(n_rows, ROW_ARGMAX, np.uint32)
    n_spec = min(n_rows - 1, limits.max_spec)
    if n_draft == RESTS:
        return _step(limits, flags, n_spec, NO_DRAFTS, 0)
    return _step(limits, flags, n_spec, (n_spec, n_draft, -1, 0), n_draft, np.full(n_rows, -1, np.int32))


def _step(
    limits: EngineLimits,
    flags: UInt32Array,
    n_spec: int,
    drafts: tuple[int, ...],
    n_draft: int,
    row_next: Int32Array | None = None,
) -> StepBatch:
    n_rows = len(flags)
    rows = np.arange(n_rows, dtype=np.int32)
    n_pages = -(-(n_rows + n_draft) // limits.page_tokens)
    return StepBatch(
        rows * 7919 % limits.n_vocab,
        rows,
        np.zeros(n_rows, np.int32),
        flags,
        np.array([(0, 0, n_rows, n_spec, 0, 0, n_pages, SEQ_RESET, *drafts)], SEQ_DTYPE),
        np.arange(n_pages, dtype=np.int32),
        row_next=row_next,
    )
