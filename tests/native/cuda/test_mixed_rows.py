"""Sequences with other numbers of rows in one step on a GPU: none changes the bits of another.

pyjet-tiny has two query heads per kv head, so 4 rows are a group of 8 columns of an attention item. The sequences have
from one group to more than an item takes, and more items than a GPU has multiprocessors.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyjet.native import NativeEngine
from tests.native.conftest import MakeModel
from tests.native.cuda.conftest import cuda_config
from tests.native.test_batch_invariance import other_tokens, shuffled_pages
from tests.support.native_steps import Run, make_batch, same_bits, step_runs

CHUNK = 512
Steps = list[tuple[int, int]]  # of each sequence: its position before the step, its rows in the step
FEW_ROWS: Steps = [(5000, 1), (700, 5), (5000, 3), (5000, 5), (700, 1), (5000, 9), (5000, 13), (700, 17)]
# Enough rows for items that walk all segments on a GPU of up to 132 multiprocessors.
BESIDE_A_PROMPT: Steps = [(5000, 1), (700, 3), (100, 2200), (5000, 5), (700, 13)]


def read(engine: NativeEngine, run: Run, n: int) -> None:
    """Advances the run by n rows without logits."""
    while n:
        part = run.part(min(n, CHUNK))
        engine.step(make_batch(replace(part, flags=0)))
        n -= len(part.tokens)


def prepared(engine: NativeEngine, steps: Steps) -> list[Run]:
    """A run per sequence, at its position before the step; pages lie scattered over the pool."""
    pages = shuffled_pages(engine, 3, [start + n for start, n in steps])
    runs = [Run(other_tokens(i, start + n), i, pages[i]) for i, (start, n) in enumerate(steps)]
    for run, (start, _) in zip(runs, steps):
        read(engine, run, start)
    return runs


def logits_beside_each_other(engine: NativeEngine, steps: Steps) -> list[np.ndarray]:
    runs = prepared(engine, steps)
    step_runs(engine, [(run, n) for run, (_, n) in zip(runs, steps)])
    return [run.all_logits for run in runs]


def logits_alone(engine: NativeEngine, steps: Steps) -> list[np.ndarray]:
    runs = prepared(engine, steps)
    for run, (_, n) in zip(runs, steps):
        step_runs(engine, [(run, n)])
    return [run.all_logits for run in runs]


@pytest.mark.parametrize(
    ("k", "v", "steps"),
    [
        ("q8_0", "q8_0", FEW_ROWS),
        ("q8_0", "f16", FEW_ROWS),
        ("f16", "q8_0", FEW_ROWS),
        ("f16", "f16", FEW_ROWS),
        ("q8_0", "q8_0", BESIDE_A_PROMPT),
    ],
)
def test_bits_are_those_of_each_sequence_alone(tiny_model: MakeModel, k: str, v: str, steps: Steps) -> None:
    n_tokens = sum(start + n for start, n in steps)
    sizes = {"n_pages": n_tokens // 64 + len(steps), "n_state_slots": len(steps), "page_tokens": 64, "max_rows": 2300}
    with NativeEngine(tiny_model("Q4_K_M"), cuda_config(**sizes, kv_type_k=k, kv_type_v=v)) as engine:
        got, expected = logits_beside_each_other(engine, steps), logits_alone(engine, steps)
    for (start, n), ours, theirs in zip(steps, got, expected):
        assert len(ours) == n
        assert same_bits(ours, theirs), f"{n} rows at {start}"
