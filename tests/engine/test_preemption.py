"""Memory that runs out: sequences wait, lose their pages and come back, and nobody can tell from their answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.core import EngineCore
from pyjet.engine.request import (
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    ProgressEvent,
    SamplingParams,
    StartedEvent,
)
from tests.engine.core_run import Run, expected, request, requests

LONG = requests(8, (-1, -1, -1, 30))
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 12), st.sampled_from([None, 0, 2]))
ACTIONS = st.lists(st.one_of(LONG, LONG, LONG, requests(12, (1, 3, 20)), st.integers(0, 6), CANCEL), min_size=8)


@settings(max_examples=80, deadline=None)
@given(ACTIONS, st.sampled_from([5, 8, 64]), st.integers(2, 5), st.integers(1, 4), st.sampled_from([13, 30, 44, 60]))
def test_answers_are_those_of_a_request_alone(
    actions: list, max_rows: int, n_slots: int, page_tokens: int, n_ctx_total: int
) -> None:
    run = Run(max_rows=max_rows, n_slots=n_slots, page_tokens=page_tokens, n_ctx_total=n_ctx_total)
    wanted, cancelled = run.play(actions)
    for name, asked in wanted.items():
        check_answer(run, asked, was_cancelled=name in cancelled)
    finished, counters = run.check_all_ended(), run.core.counters()
    n_computed = sum(e.n_context - e.timings.cache_n for e in finished if e.reason != "cancelled")
    assert sum(run.native.steps) >= n_computed + counters.tokens_recomputed
    if not cancelled:
        assert sum(run.native.steps) == n_computed + counters.tokens_recomputed


def check_answer(run: Run, asked: GenerationRequest, *, was_cancelled: bool) -> None:
    tokens, reason = expected(asked, run.limits)
    last, got = run.last(asked.id), run.tokens(asked.id)
    assert isinstance(last, FinishedEvent)
    progress = [e.processed for e in run.events[asked.id] if isinstance(e, ProgressEvent)]
    assert progress == sorted(set(progress)), "progress never goes backwards"
    if last.reason == "cancelled":
        assert was_cancelled and got == tokens[: len(got)]
    else:
        assert (got, last.reason) == (tokens, reason)
        assert last.timings.cache_n + last.timings.prompt_n == len(asked.prompt) > last.timings.cache_n
        assert last.timings.predicted_n == len(tokens)
        assert not asked.return_progress or progress[-1] == len(asked.prompt)


def test_a_request_that_needs_all_pages_gives_up_what_is_known_of_it() -> None:
    """What is known ends inside a page, which would have to stay beside the copy that the request writes on."""
    run = Run(n_slots=2, page_tokens=2, n_ctx_total=40, host_bytes=0, checkpoint_gap=1)
    long = request("b", prompt=(0, 1, 2, *range(6, 39)), max_tokens=-1)
    run.submit(request("a", prompt=(0, 1, 2, 5), max_tokens=1), long)
    run.drain()
    assert (run.tokens("b"), run.last("b").reason) == expected(long, run.limits)


def test_four_default_requests_share_each_step() -> None:
    run = Run(n_slots=4, n_ctx_slot=96, n_ctx_total=96)
    names = ("a", "b", "c", "d")
    run.submit(*(request(name, prompt=(i, i + 1), max_tokens=-1) for i, name in enumerate(names)))
    run.steps(20)
    assert run.native.companies == [4] * 20
    assert [len(run.tokens(name)) for name in names] == [20] * 4
    run.drain()
    assert run.core.counters().preemptions > 0
    for i, name in enumerate(names):
        assert (run.tokens(name), run.last(name).reason) == expected(
            request(name, prompt=(i, i + 1), max_tokens=-1), run.limits
        )


def test_one_and_a_half_contexts_for_two() -> None:
    run = Run(n_slots=2, n_ctx_total=60)
    wanted = [request("a", max_tokens=-1), request("b", max_tokens=-1, sampling=SamplingParams(seed=5))]
    run.submit(*wanted)
    while not run.core.counters().preemptions:
        run.step()
    assert len(run.tokens("a")) - 1 == len(run.tokens("b")) > 20
    assert (run.core.counters().requests_processing, run.core.counters().requests_deferred) == (1, 1)
    run.drain()
    for asked in wanted:
        assert (run.tokens(asked.id), run.last(asked.id).reason) == expected(asked)
    counters = run.core.counters()
    assert counters.preemptions == 1 and counters.tokens_recomputed == 0


def test_without_host_memory_rows_are_read_again() -> None:
    run = Run(n_slots=2, n_ctx_total=60, host_bytes=0)
    mirostat = SamplingParams(seed=5, mirostat=2, mirostat_tau=1.0)  # it remembers what it had chosen
    wanted = [request("a", max_tokens=-1), request("b", max_tokens=-1, sampling=mirostat)]
    run.submit(*wanted)
    run.drain()
    for asked in wanted:
        assert (run.tokens(asked.id), run.last(asked.id).reason) == expected(asked)
    counters = run.core.counters()
    assert counters.preemptions == 1 and 20 < counters.tokens_recomputed < 40


def test_the_youngest_of_the_lowest_priority_gives_way() -> None:
    run = Run(n_slots=3, n_ctx_total=48)
    run.submit(request("low", max_tokens=-1), request("old", max_tokens=-1, priority=1))
    run.submit(request("young", max_tokens=-1, priority=1))
    order: list[str] = []
    while run.core.has_work:
        before = {view.request_id for view in run.core.slots() if view.n_tokens}
        run.step()
        running = {view.request_id for view in run.core.slots() if view.n_tokens}
        order += sorted(name for name in before - running if name and not isinstance(run.last(name), FinishedEvent))
    assert order[:2] == ["low", "young"] and "old" not in order


def test_nobody_overtakes_who_waits_for_memory() -> None:
    run = Run(n_ctx_total=40)
    run.submit(request("a", max_tokens=30), request("b", prompt=tuple(range(30))), request("c", max_tokens=1))
    run.step()
    assert run.events["a"] and not run.events["b"] and not run.events["c"]
    assert run.core.counters().requests_deferred == 2
    run.drain()
    assert run.started == ["a", "b", "c"]
    assert run.core.counters().preemptions == 0


def preempted() -> Run:
    """ "b" has just lost its pages to "a"."""
    run = Run(n_slots=2, n_ctx_total=44)
    run.submit(request("a", max_tokens=-1), request("b", max_tokens=25))
    while not run.core.counters().preemptions:
        run.step()
    return run


def test_a_younger_request_waits_behind_a_preempted_one() -> None:
    run = preempted()
    run.submit(request("c", prompt=(1,), max_tokens=1))
    while not run.events["c"]:
        n_tokens = len(run.tokens("b"))
        run.step()
    assert run.last("a").reason == "context" and len(run.tokens("b")) >= n_tokens
    run.drain()
    assert run.tokens("b") == expected(request("b", max_tokens=25))[0]


def test_a_preempted_request_is_shown_in_its_slot_and_returns_to_it() -> None:
    run = preempted()
    n = len(run.tokens("b"))
    view = run.core.slots(with_tokens=True)[0]
    assert (view.request_id, view.is_processing, view.has_next_token) == ("b", True, True)
    assert (view.n_tokens, view.n_prompt_processed, view.n_decoded, view.n_remain) == (0, 3, n, 25 - n)
    assert len(view.generated) == n
    run.drain()
    assert sum(isinstance(event, StartedEvent) for event in run.events["b"]) == 1
    assert run.last("b").slot == 0 and run.core.slots()[0].request_id == "b"


def test_its_slot_may_be_taken_by_someone_more_urgent() -> None:
    run = preempted()
    run.submit(request("c", prompt=(1,), max_tokens=3, priority=1, id_slot=0))
    run.step()
    assert run.core.slots()[0].request_id == "c"
    run.note(run.core.cancel("a"))
    run.step()
    assert run.core.slots()[1].request_id == "b" and run.core.slots()[1].is_processing
    run.drain()
    assert run.last("b").slot == 1
    assert run.tokens("b") == expected(request("b", max_tokens=25))[0]


@pytest.mark.parametrize("keep", [None, 2])
def test_cancelled_while_preempted(keep: int | None) -> None:
    run = preempted()
    n = len(run.tokens("b"))
    run.note(run.core.cancel("b", keep))
    run.core.check()
    event, kept = run.last("b"), n if keep is None else keep
    assert (event.reason, event.slot, event.n_context) == ("cancelled", 0, 3 + kept - 1)
    assert (event.timings.prompt_n, event.timings.predicted_n) == (3, kept)
    assert not run.core.slots()[0].is_processing
    run.drain()
    assert run.core.counters().tokens_recomputed == 0


def test_failure_reaches_preempted_requests_too() -> None:
    run = preempted()
    run.note(run.core.fail_all("gone", "unavailable"))
    run.core.check()
    assert all(isinstance(run.last(name), FailedEvent) for name in "ab")
    run.core.forget_all()
    assert not run.core.has_work and run.core.counters().pages_used == 0


def test_a_wait_half_way_is_part_of_the_answers_time() -> None:
    now = [0.0]
    run = Run(n_slots=2, n_ctx_total=44)
    run.core = EngineCore(run.limits, run.native, clock=lambda: now[0])
    run.submit(request("a", max_tokens=-1), request("b", max_tokens=25))
    n_steps, ended = 0, {}
    while run.core.has_work:
        events, batch = run.core.begin()
        now[0] += 1.0
        n_steps += 1
        events += run.core.finish(run.native.step(batch))
        run.note(events)
        ended |= {event.id: n_steps for event in events if isinstance(event, FinishedEvent)}
    timings = run.last("b").timings
    assert (timings.queue_ms, timings.prompt_ms, timings.prompt_n, timings.predicted_n) == (0.0, 1000.0, 3, 25)
    assert timings.predicted_ms == (ended["b"] - 1) * 1000.0 > 24000.0


def test_a_pool_smaller_than_a_slot_is_the_context() -> None:
    run = Run(n_slots=2, n_ctx_total=24)
    run.submit(request("a", max_tokens=-1), request("b", prompt=tuple(range(24))))
    assert (run.last("b").kind, run.last("b").n_ctx) == ("context", 24)
    run.drain()
    assert (run.last("a").reason, run.last("a").n_context, len(run.tokens("a"))) == ("context", 23, 21)


def test_few_pages_lead_to_few_preemptions() -> None:
    """Reading again is paid by what others finish: no request is thrown out over and over."""
    run = Run(n_slots=3, n_ctx_total=48)
    names = [f"r{i}" for i in range(20)]
    run.submit(*(request(name, prompt=(i, 7), max_tokens=-1) for i, name in enumerate(names)))
    run.drain()
    counters = run.core.counters()
    assert 0 < counters.preemptions <= 2 * len(names)
    assert counters.tokens_recomputed == 0
