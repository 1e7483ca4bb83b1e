"""Agents that ask again at the same moment: their states stay on the device, and tokens do not wait for copies."""

from __future__ import annotations

import threading

from pyjet.engine.core import EngineCore
from pyjet.engine.loop import EngineLoop, Stop, Submit
from pyjet.engine.request import Event, FinishedEvent, TokenEvent
from tests.engine.core_run import expected, request
from tests.engine.fake_native import LIMITS
from tests.engine.noting_native import NotingNative, idle, noting_run


def test_no_state_comes_back_from_the_host_when_all_agents_ask_again() -> None:
    run, native = noting_run(n_slots=3, n_extra_states=1, n_ctx_total=400)
    prompts = [tuple(range(i, i + 9)) for i in range(3)]
    for turn in range(3):
        asked = [request(f"{turn}-{i}", prompt, max_tokens=4) for i, prompt in enumerate(prompts)]
        native.log.clear()
        run.submit(*asked)
        run.step()
        assert "write" not in native.log and "read" not in native.log
        run.drain()
        idle(run)
        for i, each in enumerate(asked):
            assert run.tokens(each.id) == expected(each, run.limits)[0]
            last = run.last(each.id)
            assert isinstance(last, FinishedEvent) and (turn == 0 or last.timings.prompt_n == 3)
            prompts[i] = (*prompts[i], *run.tokens(each.id), 40 + i, turn)
    run.check_all_ended()


def test_while_a_slot_is_free_a_state_that_somebody_goes_on_from_stays_where_it_is() -> None:
    run, native = noting_run(n_slots=3, n_extra_states=1, n_ctx_total=400)
    prompt = tuple(range(9))
    run.submit(request("first", prompt, max_tokens=4))
    run.drain()
    idle(run)
    longer = (*prompt, *run.tokens("first"), 40)
    native.log.clear()
    for name, last in (("a", 1), ("b", 2)):
        run.submit(request(name, (*longer, last), max_tokens=4))
    run.step()
    assert native.log.count("copy") == 2 and "write" not in native.log
    run.drain()
    run.check_all_ended()


def test_copies_may_come_when_a_request_may_start() -> None:
    run, _ = noting_run(n_slots=1)
    assert not run.core.may_copy
    run.submit(request("a", max_tokens=9))
    assert run.core.may_copy
    run.step()
    run.step()
    run.submit(request("b"))
    run.step()
    assert not run.core.may_copy, "nothing has changed since b found no slot"
    run.note(run.core.cancel("a"))
    assert run.core.may_copy
    run.drain()
    run.check_all_ended()


def test_a_state_that_several_start_from_stays_on_the_device() -> None:
    run, native = noting_run(n_slots=3, n_extra_states=1, n_ctx_total=400, n_ctx_slot=80, checkpoint_gap=4)
    system = tuple(range(20))

    def ask(name: str, first: int) -> None:
        run.submit(request(name, (*system, 41, first, 42, 43), boundaries=(20, 22), max_tokens=2))

    ask("a", 1)
    run.drain()
    idle(run)
    for i in range(3):
        ask(f"b{i}", 2 + i)
    native.log.clear()
    run.step()
    assert "write" not in native.log and native.log.count("copy") == 3
    run.drain()
    for i in range(3):
        last = run.last(f"b{i}")
        assert isinstance(last, FinishedEvent) and last.timings.cache_n == 20
    run.check_all_ended()


def test_the_first_token_is_told_before_the_state_behind_the_prompt_is_kept() -> None:
    native = NotingNative(LIMITS)
    ended = threading.Event()

    def sink(events: list[Event]) -> None:
        native.log.extend("token" for event in events if isinstance(event, TokenEvent))
        if any(isinstance(event, FinishedEvent) for event in events):
            ended.set()

    loop = EngineLoop(EngineCore(LIMITS, native), native, sink, lambda _number, _answer: None)
    thread = threading.Thread(target=loop.run)
    thread.start()
    loop.post(Submit(request(prompt=(1, 2, 3, 4, 5), max_tokens=3)))
    assert ended.wait(10)
    loop.post(Stop())
    thread.join(10)
    at = native.log.index("copy") if "copy" in native.log else native.log.index("read")
    assert native.log[:at] == ["step", "token"]
