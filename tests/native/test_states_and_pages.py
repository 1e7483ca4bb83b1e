"""Copies of recurrent states and KV pages: the sequence goes on with the same bits in its new place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pyjet.native import EngineConfig, NativeEngine, NativeError
from tests.native.conftest import MakeModel
from tests.support.native_steps import Part, Run, make_batch, run_alone, same_bits, step_runs

N_VOCAB, PAGE = 7424, 16
TOKENS = np.random.default_rng(31).integers(0, N_VOCAB, 90).tolist()
N_HEAD = 53  # three full pages and five tokens
FROM, TO = [7, 1, 4, 9, 0, 3], [12, 20, 15, 19, 13, 18]


@pytest.fixture(scope="module", params=["f16", "q8_0"])
def engine(request: pytest.FixtureRequest, tiny_model: MakeModel) -> Iterator[NativeEngine]:
    config = EngineConfig(
        n_pages=24, n_state_slots=5, page_tokens=PAGE, max_rows=128, n_threads=2, max_spec=2,
        kv_type_k=request.param, kv_type_v=request.param,
    )  # fmt: skip
    with NativeEngine(tiny_model("Q4_K_M"), config) as engine:
        yield engine


@pytest.fixture(scope="module")
def expected(engine: NativeEngine) -> np.ndarray:
    return run_alone(engine, TOKENS, len(TOKENS))


@pytest.fixture(autouse=True)
def head_in_slot_0(engine: NativeEngine, expected: np.ndarray) -> None:
    """The first N_HEAD tokens in slot 0 on the pages FROM; noise in the slots and pages of the copies."""
    noise = np.random.default_rng(1).integers(0, 60, (len(TO), engine.page_bytes)).astype(np.uint8)
    engine.pages_write(TO, noise)
    engine.state_write(2, np.full(engine.state_bytes, 63, np.uint8))
    engine.step(make_batch(Part(TOKENS[:N_HEAD], pages=FROM, flags=0)))


def tail(engine: NativeEngine, slot: int, pages: list[int]) -> np.ndarray:
    return engine.step(make_batch(Part(TOKENS[N_HEAD:], N_HEAD, slot, pages))).logits.copy()


def test_state_and_pages_through_the_host(engine: NativeEngine, expected: np.ndarray) -> None:
    engine.state_write(2, engine.state_read(0))
    engine.pages_write(TO[:4], engine.pages_read(FROM[:4]))
    assert same_bits(tail(engine, 2, TO), expected[N_HEAD:])
    assert same_bits(tail(engine, 0, FROM), expected[N_HEAD:])  # the source is as it was


def test_state_and_pages_copied_inside(engine: NativeEngine, expected: np.ndarray) -> None:
    engine.state_copy(0, 2)
    engine.pages_copy(FROM[:4], TO[:4])
    assert same_bits(tail(engine, 2, TO), expected[N_HEAD:])
    assert same_bits(tail(engine, 0, FROM), expected[N_HEAD:])


def test_copies_are_needed(engine: NativeEngine, expected: np.ndarray) -> None:
    """Negative control: without the state, or with one page missing, the bits differ."""
    engine.pages_copy(FROM[:4], TO[:4])
    engine.state_reset(2)
    assert not same_bits(tail(engine, 2, TO), expected[N_HEAD:])
    engine.state_copy(0, 2)
    engine.pages_copy([5], TO[1:2])
    assert not same_bits(tail(engine, 2, TO), expected[N_HEAD:])


def test_another_engine_takes_over(engine: NativeEngine, expected: np.ndarray, tiny_model: MakeModel) -> None:
    """State and pages of a saved slot work in a fresh engine with other counts of everything."""
    kv = engine.config.kv_type_k
    config = EngineConfig(
        n_pages=6, n_state_slots=1, page_tokens=PAGE, max_rows=64, n_threads=1, kv_type_k=kv, kv_type_v=kv
    )
    state, pages = engine.state_read(0), engine.pages_read(FROM[:4])
    with NativeEngine(tiny_model("Q4_K_M"), config) as other:
        assert (other.state_bytes, other.page_bytes) == (engine.state_bytes, engine.page_bytes)
        other.state_write(0, state)
        other.pages_write([3, 2, 1, 0], pages)
        assert same_bits(tail(other, 0, [3, 2, 1, 0, 5, 4]), expected[N_HEAD:])


def test_round_trips_keep_every_byte(engine: NativeEngine) -> None:
    rng = np.random.default_rng(2)
    state = rng.integers(0, 256, engine.state_bytes).astype(np.uint8)
    pages = rng.integers(0, 256, (3, engine.page_bytes)).astype(np.uint8)
    neighbours = [engine.state_read(slot) for slot in (1, 3)], engine.pages_read([15, 17, 19])
    engine.state_write(2, state)
    engine.pages_write([18, 14, 16], pages)
    assert same_bits(engine.state_read(2), state)
    assert same_bits(engine.pages_read([14, 16, 18]), pages[[1, 2, 0]])
    assert all(same_bits(engine.state_read(slot), old) for slot, old in zip((1, 3), neighbours[0]))
    assert same_bits(engine.pages_read([15, 17, 19]), neighbours[1])
    engine.pages_copy([18], [18])
    engine.state_copy(2, 2)
    assert same_bits(engine.pages_read([18])[0], pages[0]) and same_bits(engine.state_read(2), state)
    engine.pages_copy([], [])
    assert engine.pages_read([]).shape == (0, engine.page_bytes)


def test_shared_prefix_pages(engine: NativeEngine, expected: np.ndarray) -> None:
    """Two sequences read the same full pages in one step; each has its own tail page."""
    shared, n = FROM[:3], 3 * PAGE
    engine.step(make_batch(Part(TOKENS[:n], pages=shared, flags=0)))
    for slot in (1, 2):
        engine.state_copy(0, slot)
    other = [*TOKENS[:n], *TOKENS[n + 1 :], 5]
    runs = [Run(TOKENS, 1, [*shared, 14, 15, 16], n), Run(other, 2, [*shared, 10, 11, 12], n)]
    for chunk in (5, 1, 1, 20, 15):
        step_runs(engine, [(run, chunk) for run in runs])
    assert runs[0].left == runs[1].left == 0
    assert same_bits(runs[0].all_logits, expected[n:])
    assert same_bits(runs[1].all_logits, run_alone(engine, other, len(other), slot=3, pages=range(18, 24))[n:])


def test_a_shared_page_cannot_be_written(engine: NativeEngine) -> None:
    parts = [Part([1], N_HEAD, slot, FROM[:4], reset=False) for slot in (0, 1)]
    with pytest.raises(NativeError, match=f"page {FROM[3]} is written twice"):
        engine.step(make_batch(*parts))
    parts[1] = Part([1], 0, 1, FROM[:1])
    with pytest.raises(NativeError, match=f"page {FROM[0]} is written by sequence 1 and read by sequence 0"):
        engine.step(make_batch(*parts))


def test_copies_on_write_fork_a_sequence(engine: NativeEngine, expected: np.ndarray) -> None:
    """A fork inside a page: full pages shared, the partly filled one copied."""
    engine.state_copy(0, 1)
    engine.pages_copy([FROM[3]], [20])
    fork = Run([*TOKENS[:N_HEAD], 9, 9, 9], 1, [*FROM[:3], 20], N_HEAD)
    main = Run(TOKENS, 0, FROM, N_HEAD)
    step_runs(engine, [(main, 3), (fork, 3)])
    step_runs(engine, [(main, main.left)])
    assert same_bits(main.all_logits, expected[N_HEAD:])
    assert same_bits(fork.all_logits, run_alone(engine, fork.tokens, 56, slot=3, pages=range(16, 20))[N_HEAD:])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda e: e.state_read(5), "state slot 5 is outside 0..4"),
        (lambda e: e.state_reset(-1), "state slot -1 is outside"),
        (lambda e: e.state_copy(0, 5), "state slot 5 is outside"),
        (lambda e: e.state_copy(-3, 0), "state slot -3 is outside"),
        (lambda e: e.state_write(9, np.zeros(e.state_bytes, np.uint8)), "state slot 9 is outside"),
        (lambda e: e.state_commit(5, 0), "state slot 5 is outside"),
        (lambda e: e.state_commit(0, -1), "n_accept is -1"),
        (lambda e: e.state_commit(0, 1), "slot 0 has 0 pending rows"),
        (lambda e: e.pages_read([24]), r"pages\[0\] is 24, the pool has 24"),
        (lambda e: e.pages_read([0, -1]), r"pages\[1\] is -1"),
        (lambda e: e.pages_copy([0], [24]), r"to\[0\] is 24"),
        (lambda e: e.pages_copy([99], [0]), r"from\[0\] is 99"),
        (lambda e: e.pages_write([24], np.zeros((1, e.page_bytes), np.uint8)), r"pages\[0\] is 24"),
        (lambda e: e.state_write(0, np.zeros(e.state_bytes - 1, np.uint8)), "state must be a contiguous"),
        (lambda e: e.pages_write([0, 1], np.zeros((1, e.page_bytes), np.uint8)), "pages must be a contiguous"),
    ],
)
def test_wrong_slots_pages_and_sizes_are_refused(
    engine: NativeEngine, expected: np.ndarray, call: object, message: str
) -> None:
    with pytest.raises(NativeError, match=message) as caught:
        call(engine)  # type: ignore[operator]
    assert caught.value.kind == "argument"
    assert same_bits(tail(engine, 0, FROM), expected[N_HEAD:])
