"""The engine thread: streams, cancellation, failure, many clients."""

from __future__ import annotations

import threading

import pytest

from pyjet.engine.client import RequestStream
from pyjet.engine.local import LocalEngine
from pyjet.engine.request import FailedEvent, FinishedEvent, SamplingParams, StartedEvent, TokenEvent
from tests.engine.core_run import expected, request
from tests.engine.fake_native import LIMITS, FakeNative


def tokens(stream: RequestStream) -> list[int]:
    return [event.token for event in stream if isinstance(event, TokenEvent)]


def test_events_come_in_order_and_the_stream_closes() -> None:
    with LocalEngine(FakeNative(), LIMITS) as engine:
        stream = engine.submit(request())
        events = list(stream)
        assert isinstance(events[0], StartedEvent) and isinstance(events[-1], FinishedEvent)
        assert [e.token for e in events[1:-1]] == expected(request())[0]
        assert stream.closed and stream.get() is None
    assert engine.state == "stopped"


def test_many_clients_get_what_they_get_alone() -> None:
    wanted = [
        request(f"r{i}", prompt=(i, 2 * i % 40, 5), sampling=SamplingParams(seed=i), max_tokens=6) for i in range(24)
    ]
    got: dict[str, list[int]] = {}
    with LocalEngine(FakeNative(), LIMITS) as engine:
        threads = [threading.Thread(target=lambda r=r: got.__setitem__(r.id, tokens(engine.submit(r)))) for r in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert engine.counters().requests_total == 24
    assert got == {r.id: expected(r)[0] for r in wanted}


def test_cancel_storm_leaves_an_empty_engine() -> None:
    with LocalEngine(FakeNative(), LIMITS) as engine:
        for round_ in range(20):
            streams = [engine.submit(request(f"{round_}-{i}", max_tokens=-1)) for i in range(8)]
            for stream in streams:
                engine.cancel(stream.id)
            assert all(list(stream)[-1].reason in ("cancelled", "context") for stream in streams)
        counters = engine.counters()
        assert (counters.pages_used, counters.requests_processing, counters.requests_deferred) == (0, 0, 0)


def test_cancel_takes_effect_within_one_step() -> None:
    gate = threading.Semaphore(0)
    with LocalEngine(FakeNative(gate=gate), LIMITS) as engine:
        stream = engine.submit(request(max_tokens=20))
        gate.release()
        while not isinstance(stream.get(5), TokenEvent):
            pass
        engine.cancel("a")
        gate.release()
        rest = list(stream)
        assert len(rest) <= 2 and rest[-1].reason == "cancelled"
        gate.release(100)


def test_slots_and_counters_answer_while_a_step_runs() -> None:
    gate = threading.Semaphore(0)
    with LocalEngine(FakeNative(gate=gate), LIMITS) as engine:
        stream = engine.submit(request())
        assert isinstance(stream.get(5), StartedEvent)
        assert [view.is_processing for view in engine.slots()] == [False, False, True]
        assert engine.counters().requests_processing == 1
        gate.release(100)


def test_failed_step_fails_everything_and_later_requests() -> None:
    native = FakeNative()
    native.fail_at = 2
    engine = LocalEngine(native, LIMITS)
    streams = [engine.submit(request(f"r{i}", max_tokens=9)) for i in range(6)]
    last = [list(stream)[-1] for stream in streams]
    assert all(isinstance(event, FailedEvent) and event.kind == "unavailable" for event in last)
    assert "fell off the bus" in last[0].message
    assert engine.state == "failed" and "fell off the bus" in (engine.error or "")
    assert isinstance(engine.submit(request("late")).get(5), FailedEvent)
    engine.close()
    assert native.closed


def test_close_ends_running_requests() -> None:
    native = FakeNative()
    native.delay = 0.01
    engine = LocalEngine(native, LIMITS)
    stream = engine.submit(request(max_tokens=-1))
    engine.close()
    assert list(stream)[-1].kind == "unavailable"
    assert isinstance(engine.submit(request("late")).get(5), FailedEvent)


def test_same_id_twice_fails_the_second_only() -> None:
    with LocalEngine(FakeNative(), LIMITS) as engine:
        native_stream = engine.submit(request(max_tokens=30))
        second = engine.submit(request())
        if isinstance(event := second.get(5), FailedEvent):
            assert "in use" in event.message
        assert tokens(native_stream) == expected(request(max_tokens=30))[0]


def test_get_with_timeout_returns_none_and_stays_open() -> None:
    stream = RequestStream("x")
    assert stream.get(timeout=0.01) is None and not stream.closed


@pytest.mark.parametrize("n", [1, 5])
def test_same_seed_same_answer(n: int) -> None:
    sampling = SamplingParams(seed=42, temperature=1.2)
    with LocalEngine(FakeNative(), LIMITS) as engine:
        answers = {tuple(tokens(engine.submit(request(f"{i}", sampling=sampling)))) for i in range(n)}
    assert len(answers) == 1
