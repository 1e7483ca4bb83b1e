"""Continuous batching: whatever else runs, each request gets the answer that it gets alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.core import EngineCore
from pyjet.engine.request import (
    FailedEvent,
    FinishedEvent,
    ProgressEvent,
    SamplingParams,
    StartedEvent,
)
from tests.engine.core_run import Run, expected, request, requests
from tests.engine.fake_native import N_VOCAB

CANCEL = st.tuples(st.just("cancel"), st.integers(0, 20), st.none())
ACTIONS = st.lists(st.one_of(requests(30, (-1, 0, 1, 3, 12)), st.integers(0, 4), CANCEL), max_size=40)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.sampled_from([3, 8, 64]), st.sampled_from([40, 64, 120]))
def test_answers_do_not_depend_on_the_others(actions: list, max_rows: int, n_ctx_total: int) -> None:
    run = Run(max_rows=max_rows, n_ctx_total=n_ctx_total)
    wanted, cancelled = run.play(actions)
    for name, asked in wanted.items():
        tokens, reason = expected(asked)
        last = run.last(name)
        assert isinstance(last, FinishedEvent)
        if last.reason == "cancelled":
            assert name in cancelled
            assert run.tokens(name) == tokens[: len(run.tokens(name))]
        else:
            assert (run.tokens(name), last.reason) == (tokens, reason)
    run.check_all_ended()


def test_first_requests_take_the_highest_slots_then_the_least_recently_used() -> None:
    run = Run()
    for i, slot in enumerate((2, 1, 0, 2)):
        run.submit(request(f"r{i}", prompt=(i, 7, 9)))
        run.drain()
        assert run.last(f"r{i}").slot == slot


def test_wanted_slot_is_taken_modulo_and_waits_while_busy_but_others_pass() -> None:
    run = Run()
    run.submit(request("a", id_slot=4, max_tokens=8), request("b", id_slot=1), request("c"))
    run.step()
    assert isinstance(run.events["a"][0], StartedEvent) and run.events["a"][0].slot == 1
    assert not run.events["b"] and run.events["c"][0].slot == 2
    run.drain()
    assert run.last("b").slot == 1


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    run = Run(max_rows=4)
    run.submit(request("a", max_tokens=30))
    run.step()
    run.submit(request("b", prompt=tuple(range(30)), max_tokens=1))
    before = len(run.tokens("a"))
    n_steps = 0
    while not run.tokens("b"):
        run.step()
        n_steps += 1
    assert n_steps == 10 and len(run.tokens("a")) == before + 10


def test_urgent_requests_leave_the_queue_first() -> None:
    run = Run(n_slots=1)
    run.submit(request("a"), request("low"), request("high", priority=1))
    run.drain()
    order = [n for n in run.events if n]
    assert order == ["a", "high", "low"] or run.events["high"][0].id_task == 2
    assert run.last("high").timings.queue_ms < run.last("low").timings.queue_ms


@pytest.mark.parametrize(("prompt", "max_tokens"), [(tuple(range(40)), 1), (tuple(range(45)), -1)])
def test_prompt_that_cannot_fit_fails_at_once(prompt: tuple[int, ...], max_tokens: int) -> None:
    run = Run()
    run.submit(request(prompt=prompt, max_tokens=max_tokens))
    event = run.last("a")
    assert isinstance(event, FailedEvent)
    assert (event.kind, event.n_prompt, event.n_ctx) == ("context", len(prompt), 40)
    text = f"request ({len(prompt)} tokens) exceeds the available context size (40 tokens), try increasing it"
    assert event.message == text


def test_context_limit_leaves_the_last_token_out() -> None:
    run = Run()
    run.submit(request(prompt=tuple(range(38)), max_tokens=-1))
    run.drain()
    event = run.last("a")
    assert (event.reason, event.n_context, len(run.tokens("a"))) == ("context", 39, 2)


def test_an_empty_prompt_ends_at_once() -> None:
    run = Run()
    run.submit(request("empty", prompt=()))
    assert run.last("empty").reason == "none"
    assert not run.core.has_work


@pytest.mark.parametrize("prompt", [(1, N_VOCAB), (1, -1), (1 << 31,), (1 << 63, 1), (-1, 1 << 63), (1, 1 << 70)])
def test_tokens_outside_the_vocabulary_fail_at_once(prompt: tuple[int, ...]) -> None:
    run = Run()
    run.submit(request(prompt=prompt))
    event = run.last("a")
    assert isinstance(event, FailedEvent)
    assert (event.kind, event.message) == ("server", "Prompt contains invalid tokens")
    assert not run.core.has_work


def test_progress_starts_at_zero_and_ends_with_the_whole_prompt() -> None:
    run = Run(max_rows=4)
    run.submit(request(prompt=tuple(range(10)), return_progress=True))
    run.drain()
    progress = [e.processed for e in run.events["a"] if isinstance(e, ProgressEvent)]
    assert progress == [0, 4, 8, 10]


def test_times_follow_the_clock_and_the_first_token_belongs_to_the_prompt() -> None:
    now = [100.0]
    run = Run()
    run.core = EngineCore(run.limits, run.native, clock=lambda: now[0])
    run.submit(request(max_tokens=3))
    for _ in range(3):
        events, batch = run.core.begin()
        now[0] += 2.0
        run.note(events + run.core.finish(run.native.step(batch)))
    timings = run.last("a").timings
    assert (timings.prompt_n, timings.prompt_ms, timings.predicted_n, timings.predicted_ms) == (3, 2000.0, 3, 4000.0)
    counters = run.core.counters()
    assert (counters.predicted_tokens_timed, counters.predicted_seconds, counters.prompt_seconds) == (2, 4.0, 2.0)


def test_single_token_takes_one_microsecond_as_at_the_peer() -> None:
    run = Run()
    run.submit(request(max_tokens=0))
    run.drain()
    assert (run.last("a").timings.predicted_n, run.last("a").timings.predicted_ms) == (1, 0.001)


def test_cancel_can_take_tokens_back() -> None:
    run = Run()
    run.submit(request(max_tokens=20))
    for _ in range(6):
        run.step()
    run.note(run.core.cancel("a", keep_tokens=2))
    event = run.last("a")
    assert (event.reason, event.timings.predicted_n, event.n_context) == ("cancelled", 2, 4)
    assert run.core.counters().predicted_tokens == 2


def test_cancelled_in_the_queue() -> None:
    run = Run(n_slots=1)
    run.submit(request("a"), request("b"))
    run.step()
    run.note(run.core.cancel("b"))
    assert (run.last("b").reason, run.last("b").slot) == ("cancelled", -1)
    assert run.core.cancel("nobody") == []


def test_one_request_without_possible_tokens_fails_alone() -> None:
    run = Run()
    banned = SamplingParams(logit_bias=tuple((i, float("-inf")) for i in range(N_VOCAB)))
    run.submit(request("a"), request("b", sampling=banned), request("c", sampling=SamplingParams(seed=1)))
    run.drain()
    assert isinstance(run.last("b"), FailedEvent) and run.last("b").kind == "server"
    assert run.tokens("a") == expected(request("a"))[0]
    assert run.tokens("c") == expected(request("c", sampling=SamplingParams(seed=1)))[0]


def test_slots_show_the_running_and_the_last_request() -> None:
    run = Run()
    assert [v.id_task for v in run.core.slots()] == [-1, -1, -1]
    run.submit(request(max_tokens=5))
    run.step()
    view = run.core.slots()[2]
    assert (view.is_processing, view.n_prompt, view.n_decoded, view.n_remain, view.id_task) == (True, 3, 1, 4, 0)
    run.drain()
    view = run.core.slots(with_tokens=True)[2]
    assert (view.is_processing, view.request_id, view.n_decoded, view.n_remain) == (False, "a", 0, -1)
    assert (len(view.generated), view.n_tokens, view.n_prompt_processed) == (5, 7, 0)
    assert run.core.slots()[2].generated == ()


def test_slots_without_a_limit_have_minus_one_left() -> None:
    run = Run()
    run.submit(request(max_tokens=-1))
    run.step()
    assert run.core.slots()[2].n_remain == -1
    assert run.core.slots()[1].n_remain == -1


def test_time_limit_ends_an_answer() -> None:
    now = [0.0]
    run = Run()
    run.core = EngineCore(run.limits, run.native, clock=lambda: now[0])
    run.submit(request(max_tokens=30, time_limit_ms=2500))
    while run.core.has_work:
        events, batch = run.core.begin()
        now[0] += 1.0
        run.note(events + run.core.finish(run.native.step(batch)))
    assert (run.last("a").reason, len(run.tokens("a"))) == ("limit", 4)


def test_tokens_come_from_the_step_and_from_logits_where_it_did_not_settle_them() -> None:
    """The same answers beside requests that need their logits, the best token only, or are still being read."""
    run = Run(n_slots=3, n_ctx_total=120)
    sampled = SamplingParams(seed=4, repeat_penalty=1.2)
    asked = {
        "sampled": request("sampled", sampling=sampled, max_tokens=20),
        "host": request("host", sampling=SamplingParams(seed=5, typical_p=0.9), max_tokens=20),
        "greedy": request("greedy", prompt=tuple(range(12)), max_tokens=20),
    }
    run.submit(*asked.values())
    run.drain()
    for name, wanted in asked.items():
        assert run.tokens(name) == expected(wanted)[0], name
    assert run.native.n_sampled == 15 and run.native.n_unsettled == 5
