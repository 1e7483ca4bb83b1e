"""Attention over several segments on a GPU, the long ones from position 2,048 on included.

The whole prompt in one step has enough tiles for items that walk all segments; steps of a few rows compute segments
apart and merge them. Both must give the same bits, and the CPU's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

from pyjet.native import EngineConfig, NativeEngine
from tests.native.conftest import MakeModel
from tests.native.cuda.conftest import cuda_config
from tests.native.cuda.test_numbers import KL_LIMIT, mean_kl, tokens_of
from tests.native.test_batch_invariance import other_tokens, shuffled_pages
from tests.support.native_steps import Run, run_alone, same_bits, step_runs

N, N_TAIL = 2700, 60
KV_TYPES = [("f16", "f16"), ("q8_0", "q8_0"), ("f16", "q8_0"), ("q8_0", "f16")]
Kv = tuple[str, str]
Baseline = Callable[[Kv], np.ndarray]


def sizes(kv: Kv, page_tokens: int = 64) -> dict[str, object]:
    return {
        "n_pages": 3000 // page_tokens + 4, "n_state_slots": 4, "page_tokens": page_tokens, "max_rows": N,
        "kv_type_k": kv[0], "kv_type_v": kv[1],
    }  # fmt: skip


@pytest.fixture(scope="module")
def baseline(tiny_model: MakeModel) -> Iterator[Baseline]:
    """baseline(kv): logits of the whole prompt in one step."""
    model = tiny_model("Q4_K_M")

    @cache
    def logits(kv: Kv) -> np.ndarray:
        with NativeEngine(model, cuda_config(**sizes(kv))) as engine:
            return run_alone(engine, tokens_of(model, N), N)

    yield logits
    logits.cache_clear()


@pytest.mark.parametrize("kv", KV_TYPES)
def test_numbers_are_the_cpus(tiny_model: MakeModel, baseline: Baseline, kv: Kv) -> None:
    model = tiny_model("Q4_K_M")
    with NativeEngine(model, EngineConfig(**sizes(kv))) as cpu:
        expected = run_alone(cpu, tokens_of(model, N), 512)
    for rows in (slice(0, 300), slice(1500, 1900), slice(N - 400, N)):
        assert mean_kl(baseline(kv)[rows], expected[rows]) < KL_LIMIT["Q4_K_M"]
        assert np.mean(baseline(kv)[rows].argmax(axis=1) == expected[rows].argmax(axis=1)) > 0.9


@pytest.mark.parametrize("page_tokens", [16, 64, 112])
@pytest.mark.parametrize("kv", KV_TYPES)
def test_bits_of_chunks_on_scattered_pages(tiny_model: MakeModel, baseline: Baseline, kv: Kv, page_tokens: int) -> None:
    """Chunks, then drafts and single rows beside another sequence, before and after it in the step."""
    model, expected = tiny_model("Q4_K_M"), baseline(kv)
    with NativeEngine(model, cuda_config(**sizes(kv, page_tokens))) as engine:
        engine.pages_write(*noise(engine))
        pages = shuffled_pages(engine, 7, [N, 100])
        run, other = Run(tokens_of(model, N), 2, pages[0]), Run(other_tokens(1, 100), 0, pages[1])
        while run.position < N - N_TAIL:
            step_runs(engine, [(run, min(290, N - N_TAIL - run.position))])
        for n in (1, 3, 2, 17, 1, 5, 1, 4):
            step_runs(engine, [(other, 2), (run, n)])
            step_runs(engine, [(run, 1), (other, 3)])
        step_runs(engine, [(run, run.left)])
        assert same_bits(run.all_logits, expected)


def noise(engine: NativeEngine) -> tuple[range, np.ndarray]:
    """Pages full of NaN, infinities and anything else: what a page held before must not matter."""
    n = engine.config.n_pages
    return range(n), np.random.default_rng(5).integers(0, 256, (n, engine.page_bytes)).astype(np.uint8)
