"""What a decoding step takes on an H200, by what its kernels do. The constants are fitted to the benchmark's record.

Of bench/results/nvidia-h200/speculation.json: every fixed number of drafts, 1, 4 and 8 agents, 200 to 100,000 tokens
deep. These steps are met within 1.8 % (root mean square), the worst within 5 %; two of the same rows differ by as much.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np

from pyjet.engine.draft_costs import RESTS
from pyjet.native.step import StepBatch, StepResult

# Milliseconds. Products: weights are read, each row is multiplied, and edges of tiles of 8 rows.
STEP, ROW, SEQUENCE = 6.45, 0.045, 0.176
TILE_EDGES = ((8, 0.63), (16, 0.56), (24, 1.45))
# Of 100,000 tokens of one sequence, by tiles of 8 columns that an item of attention has.
ATTENTION = (0.0, 1.39, 1.64, 2.0, 2.1)
HEADS, COLUMNS = 6, 32  # query heads of a KV head: a row has so many columns; an item has at most so many
FIRST_DRAFT, NEXT_DRAFT = 0.45, 0.24  # of the MTP block
BLOCKS_WITH_ATTENTION = 16  # of the model; the MTP block has one


def attention_ms(rows: Items[int], context: float) -> float:
    """Of sequences of so many rows, each ``context`` tokens deep: all items are as wide as the widest sequence."""
    tiles = -(-min(COLUMNS, HEADS * max(rows)) // 8)
    n_items = sum(-(-HEADS * n // COLUMNS) for n in rows)
    return n_items * ATTENTION[tiles] * context / 100_000


def rows_seconds(rows: Items[int], context: float) -> float:
    """Of a step without the MTP block's part."""
    n_rows = sum(rows)
    edges = sum(ms for edge, ms in TILE_EDGES if n_rows > edge)
    return (STEP + ROW * n_rows + SEQUENCE * len(rows) + edges + attention_ms(rows, context)) * 1e-3


def drafts_seconds(rows: Items[int], context: float, n_draft: int) -> float:
    """Of the MTP block's part: it looks at the context like any block with attention, once for each draft."""
    if n_draft in (RESTS, 0):
        return 0.0
    one_row = attention_ms([1] * len(rows), context)
    attention = (attention_ms(rows, context) + (n_draft - 1) * one_row) / BLOCKS_WITH_ATTENTION
    return (FIRST_DRAFT + (n_draft - 1) * NEXT_DRAFT + attention) * 1e-3


class Device:
    """Stands in for the engine when it is calibrated, with nothing in the context."""

    def step(self, batch: StepBatch) -> StepResult:
        rows = batch.seqs["n_rows"].tolist()
        n_draft = RESTS if batch.row_next is None else int(batch.seqs["n_draft"].max())
        seconds = rows_seconds(rows, 0.0) + drafts_seconds(rows, 0.0, n_draft)
        empty = np.empty((0, 1), np.float32)
        return StepResult(empty, empty, np.empty(0, np.int32), np.empty(0, np.int32), seconds * 1e6)
