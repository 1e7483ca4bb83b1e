"""Embeddings come from the same steps as answers: their numbers are exact, and nobody's answer changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.pooling import Pool
from pyjet.engine.request import EmbeddingEvent, FailedEvent, FinishedEvent, GenerationRequest, Pooling
from pyjet.engine.speculation_settings import SpeculationSettings
from tests.engine.core_run import Run, expected, request, requests
from tests.engine.fake_native import fake_hidden

KINDS: tuple[Pooling, ...] = ("none", "mean", "cls", "last")
EMBEDDINGS = st.builds(
    replace, requests(30, (-1,)), pooling=st.sampled_from(KINDS), return_progress=st.just(False)
)
SHARED = st.builds(  # prompts that begin alike
    request,
    prompt=st.integers(1, 30).map(lambda n: tuple(range(n)) + (7, 7)),
    pooling=st.sampled_from([*KINDS, None]),
    max_tokens=st.sampled_from([3, 12]),
)
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 12), st.none())
ACTIONS = st.lists(st.one_of(EMBEDDINGS, SHARED, requests(8, (-1, 3, 20)), st.integers(0, 6), CANCEL), min_size=6)
SIZES = st.fixed_dictionaries(
    {
        "max_rows": st.sampled_from([5, 8, 64]),
        "n_slots": st.integers(1, 5),
        "page_tokens": st.integers(1, 5),
        "n_ctx_total": st.sampled_from([40, 60, 100]),
        "host_bytes": st.sampled_from([0, 2_000, None]),
        "max_checkpoints": st.sampled_from([0, 3, 100]),
        "checkpoint_gap": st.sampled_from([1, 3]),
    }
)
DRAFTS = st.sampled_from([SpeculationSettings(), SpeculationSettings(mtp=True, lookup=True)])


def embedding(asked: GenerationRequest) -> np.ndarray:
    """By definition: float32[n, 3]."""
    prompt = list(asked.prompt)
    rows = np.array([fake_hidden(prompt[: i + 1]) for i in range(len(prompt))])
    if asked.pooling == "mean":
        return rows.astype(np.float64).mean(axis=0)[None].astype(np.float32)
    return {"none": rows, "cls": rows[:1], "last": rows[-1:]}[str(asked.pooling)]


def rows_of(run: Run, name: str) -> np.ndarray:
    return np.concatenate([e.rows for e in run.events[name] if isinstance(e, EmbeddingEvent)])


def check(run: Run, asked: GenerationRequest, *, was_cancelled: bool) -> None:
    last = run.last(asked.id)
    assert isinstance(last, FinishedEvent)
    if last.reason == "cancelled":
        assert was_cancelled
    elif asked.pooling is None:
        assert (run.tokens(asked.id), last.reason) == expected(asked, run.limits)
    else:
        assert last.reason == "read" and run.tokens(asked.id) == []
        np.testing.assert_allclose(rows_of(run, asked.id), embedding(asked), rtol=1e-6)
        timings = last.timings
        assert timings.cache_n + timings.prompt_n == len(asked.prompt) == last.n_context
        assert asked.pooling == "last" or timings.cache_n == 0


@settings(max_examples=150, deadline=None)
@given(ACTIONS, SIZES, DRAFTS)
def test_embeddings_beside_answers(actions: list, sizes: dict[str, int], drafts: SpeculationSettings) -> None:
    run = Run(**{**sizes, "max_rows": max(sizes["max_rows"], sizes["n_slots"])}, speculation=drafts)
    wanted, cancelled = run.play(actions)
    for name, asked in wanted.items():
        check(run, asked, was_cancelled=name in cancelled)
    run.check_all_ended()


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_do_not_change_a_bit(kind: Pooling) -> None:
    asked = request(prompt=tuple(range(30)), pooling=kind)
    results = []
    for max_rows in (3, 7, 64):
        run = Run(max_rows=max_rows)
        run.submit(asked)
        run.drain()
        results.append(rows_of(run, "a").tobytes())
    assert len(set(results)) == 1


def test_a_long_text_stalls_nobody() -> None:
    """One token in every step, while a text of five chunks is read."""
    run = Run()
    run.submit(request("a", max_tokens=-1))
    run.steps(3)
    n_before = len(run.tokens("a"))
    run.submit(request("text", prompt=tuple(range(35)), pooling="mean"))
    n = 0
    while run.core.counters().requests_finished == 0:
        run.step()
        n += 1
    assert n == 5 and len(run.tokens("a")) == n_before + n


def test_drafts_go_on_beside_embeddings() -> None:
    """The MTP block takes part in steps that give hidden rows, so it knows all of a conversation."""
    run = Run(speculation=SpeculationSettings(mtp=True), max_rows=16)
    run.submit(request("a", prompt=tuple(range(12)), max_tokens=20))
    run.submit(request("text", prompt=tuple(range(20, 40)), pooling="none"))
    run.drain()
    assert run.native.mtp.n_steps == len(run.native.steps) and run.native.mtp.n_stale == 0
    assert run.core.counters().draft_tokens > 0
    check(run, replace(request("text", prompt=tuple(range(20, 40))), pooling="none"), was_cancelled=False)


def test_nothing_is_kept_of_a_text() -> None:
    run = Run()
    run.submit(request("a", prompt=tuple(range(30)), pooling="last"))
    run.drain()
    assert run.core.counters().pages_cached == 0 and run.core.counters().checkpoints == 0


def test_the_last_row_may_follow_what_is_known() -> None:
    run = Run()
    run.submit(request("a", prompt=tuple(range(20)), max_tokens=1))
    run.drain()
    for kind, is_reused in (("last", True), ("mean", False), ("cls", False), ("none", False)):
        asked = request(f"text-{kind}", prompt=(*range(20), 5, 6), pooling=kind)
        run.submit(asked)
        run.drain()
        check(run, asked, was_cancelled=False)
        assert (run.last(asked.id).timings.cache_n > 0) == is_reused


def test_a_text_that_does_not_fit() -> None:
    run = Run()
    run.submit(request("a", prompt=(1,) * 40, pooling="mean"))
    assert isinstance(failed := run.last("a"), FailedEvent) and failed.kind == "context"
    run.submit(request("b", prompt=(1,) * 39, pooling="mean"))
    run.drain()
    assert run.last("b").reason == "read"


def test_rows_that_come_again_count_once() -> None:
    """After a preemption that could keep nothing a prompt is read again."""
    pool = Pool("mean", 3)
    pool.add(np.full((2, 4), 2.0, np.float32), 2)
    assert pool.wanted(0, 3) == (2, 3) and pool.n_skippable == 2
    pool.add(np.full((1, 4), 5.0, np.float32), 3)
    assert pool.finish().tolist() == [[3.0] * 4]
