"""Batch invariance: the bits of a row's logits depend on the tokens of its own sequence and on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

from pyjet.native import EngineConfig, NativeEngine
from tests.native.conftest import MakeModel
from tests.support.native_steps import Part, Run, make_batch, pages_for, run_alone, same_bits, step_runs

N_LONG, N_SHORT = 1300, 120  # attention is cut at 512 and 1,024; 120 is no multiple of any tile
N_VOCAB = 7424  # of pyjet-tiny
TOKENS = np.random.default_rng(11).integers(0, N_VOCAB, N_LONG).tolist()
THREADS, KV_TYPES = (1, 2), ("f16", "q8_0")

MakeEngine = Callable[..., NativeEngine]
Baseline = Callable[[str, str], np.ndarray]


@pytest.fixture(scope="module")
def engine_for(tiny_model: MakeModel) -> Iterator[MakeEngine]:
    """engine_for(type_name, kv, n_threads, page_tokens=64)"""
    engines: list[NativeEngine] = []

    @cache
    def make(type_name: str, kv: str, n_threads: int, page_tokens: int = 64) -> NativeEngine:
        config = EngineConfig(
            n_pages=3200 // page_tokens, n_state_slots=8, page_tokens=page_tokens, n_threads=n_threads,
            max_rows=N_LONG, kv_type_k=kv, kv_type_v=kv,
        )  # fmt: skip
        engines.append(NativeEngine(tiny_model(type_name), config))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def baseline(engine_for: MakeEngine) -> Baseline:
    """baseline(type_name, kv): logits of TOKENS, alone, in one step, on one thread, pages in order.

    Its first rows are those of a shorter prompt: later tokens cannot change them.
    """

    @cache
    def logits(type_name: str, kv: str) -> np.ndarray:
        n = N_SHORT if type_name == "Q8_0" else N_LONG
        return run_alone(engine_for(type_name, kv, 1), TOKENS[:n], n)

    return logits


def shuffled_pages(engine: NativeEngine, seed: int, counts: list[int]) -> list[list[int]]:
    """Disjoint page lists of the given lengths in token counts, scattered over the pool."""
    pool = np.random.default_rng(seed).permutation(engine.config.n_pages).tolist()
    sizes = [len(pages_for(engine, count)) for count in counts]
    assert sum(sizes) <= len(pool)
    ends = np.cumsum(sizes).tolist()
    return [pool[end - size : end] for size, end in zip(sizes, ends)]


def other_tokens(index: int, n: int) -> list[int]:
    return np.random.default_rng(100 + index).integers(0, N_VOCAB, n).tolist()


def seven_others(engine: NativeEngine, pages: list[list[int]], counts: list[int]) -> list[Run]:
    return [Run(other_tokens(i, n), 1 + i, pages[i]) for i, n in enumerate(counts)]


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("type_name", ["Q4_K_M", "F16", "Q8_0"])
def test_prompt_chunks(engine_for: MakeEngine, baseline: Baseline, type_name: str, kv: str, n_threads: int) -> None:
    engine, expected = engine_for(type_name, kv, n_threads), baseline(type_name, kv)[:N_SHORT]
    for chunk in (1, 7, 64, N_SHORT):
        assert same_bits(run_alone(engine, TOKENS[:N_SHORT], chunk), expected), chunk


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("type_name", ["Q4_K_M", "F16", "Q8_0"])
def test_beside_seven_others(
    engine_for: MakeEngine, baseline: Baseline, type_name: str, kv: str, n_threads: int
) -> None:
    """Eight sequences on scattered pages, decode rows and prompt chunks in every step, in changing order.

    Every one of them has the bits that it has alone.
    """
    engine = engine_for(type_name, kv, n_threads)
    counts = [N_SHORT, 3, 17, 40, 64, 90, 97, 110]
    pages = shuffled_pages(engine, 1, counts)
    runs = [Run(TOKENS[:N_SHORT], 0, pages[0]), *seven_others(engine, pages[1:], counts[1:])]
    rng = np.random.default_rng(2)
    while any(run.left for run in runs):
        chunks = [(runs[i], int(rng.choice([1, 1, 1, 2, 7, 16, 33]))) for i in rng.permutation(len(runs))]
        step_runs(engine, [(run, min(n, run.left)) for run, n in chunks if run.left])
    assert same_bits(runs[0].all_logits, baseline(type_name, kv)[:N_SHORT])
    for run in runs[1:]:
        assert same_bits(run.all_logits, run_alone(engine, run.tokens, len(run.tokens))), run.slot


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("page_tokens", [16, 112])
def test_page_sizes(engine_for: MakeEngine, baseline: Baseline, page_tokens: int, n_threads: int) -> None:
    engine = engine_for("Q4_K_M", "q8_0", n_threads, page_tokens)
    (pages,) = shuffled_pages(engine, 3, [N_SHORT])
    assert same_bits(run_alone(engine, TOKENS[:N_SHORT], 33, pages=pages), baseline("Q4_K_M", "q8_0")[:N_SHORT])


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("type_name", ["Q4_K_M", "F16"])
def test_long_context(engine_for: MakeEngine, baseline: Baseline, type_name: str, kv: str, n_threads: int) -> None:
    """Three attention segments, which two threads compute apart when few rows run.

    Chunks of 64, then one row at a time, a few rows, and single rows beside seven decoding sequences.
    """
    engine = engine_for(type_name, kv, n_threads)
    counts = [N_LONG] + [30] * 7
    pages = shuffled_pages(engine, 4, counts)
    run, others = Run(TOKENS, 0, pages[0]), seven_others(engine, pages[1:], counts[1:])
    while run.position < 1280:
        step_runs(engine, [(run, 64)])
    for n in (1, 1, 1, 5, 1, 3):
        step_runs(engine, [(run, n)])
    for other in others:
        step_runs(engine, [(other, 20)])
    while run.left:
        step_runs(engine, [(other, 1) for other in others[:3]] + [(run, 1)] + [(other, 1) for other in others[3:]])
    assert same_bits(run.all_logits, baseline(type_name, kv))


@pytest.mark.parametrize("kv", KV_TYPES)
def test_single_rows_across_segment_borders(engine_for: MakeEngine, baseline: Baseline, kv: str) -> None:
    """Row by row over positions 512 and 1,024, where the number of attention segments changes."""
    engine = engine_for("Q4_K_M", kv, 2)
    run = Run(TOKENS[:1030], 3, shuffled_pages(engine, 5, [1030])[0])
    while run.left:
        near = any(border - 6 <= run.position <= border + 4 for border in (512, 1024))
        limit = next((border - 6 for border in (512, 1024) if run.position < border - 6), run.position + run.left)
        step_runs(engine, [(run, 1 if near else min(200, limit - run.position))])
    assert same_bits(run.all_logits, baseline("Q4_K_M", kv)[:1030])


def test_differences_are_seen(engine_for: MakeEngine, baseline: Baseline) -> None:
    """Negative control: a wrong page, a position off by one or one other token far back change the bits.

    Two swapped pages need not: keys carry their position, so only the order of a sum changes.
    """
    engine, expected = engine_for("Q4_K_M", "f16", 2), baseline("Q4_K_M", "f16")
    pages = list(pages_for(engine, N_LONG))
    run = Run(TOKENS, 0, pages)
    while run.position < 1290:
        step_runs(engine, [(run, min(300, 1290 - run.position))])
    state = engine.state_read(0)

    def next_logits(page_table: list[int], position: int) -> np.ndarray:
        engine.state_write(0, state)
        return engine.step(make_batch(Part([TOKENS[1290]], position, 0, page_table))).logits[0].copy()

    assert same_bits(next_logits(pages, 1290), expected[1290])
    assert not same_bits(next_logits([pages[1], *pages[1:]], 1290), expected[1290])
    assert not same_bits(next_logits(pages, 1291), expected[1290])
    other = [*TOKENS[:3], (TOKENS[3] + 1) % N_VOCAB, *TOKENS[4:600]]
    assert not same_bits(run_alone(engine, other, 600)[-1], expected[599])
    nudged = expected[:2].copy()
    nudged[1, 7] = np.nextafter(nudged[1, 7], np.inf)
    assert not same_bits(nudged, expected[:2])
