"""States that are copied while a step computes: who wants their slots does not wait, and answers stay what they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

from pyjet.engine import copy_times
from pyjet.engine.copy_times import CopyTimes
from pyjet.engine.core import EngineCore
from pyjet.engine.loop import EngineLoop, Stop, Submit
from pyjet.engine.request import Event, FailedEvent, FinishedEvent, TokenEvent
from tests.engine.core_run import Run, expected, request
from tests.engine.fake_native import FakeNative
from tests.engine.noting_native import NotingNative, idle, noting_run

SLOW = 1e6  # seconds of a step
Native = TypeVar("Native", bound=FakeNative)


def prompt_of(i: int, n: int = 9) -> tuple[int, ...]:
    return tuple((5 * i + j) % 40 for j in range(n))


def check_answers(run: Run, *names: str, prompts: dict[str, tuple[int, ...]], n: int) -> None:
    for name in names:
        assert run.tokens(name) == expected(request(name, prompts[name], max_tokens=n), run.limits)[0]


def warm(run: Run) -> None:
    """A copy was timed and host memory is there, as in any engine that was idle once."""
    run.submit(request("warm", (1, 2, 3), max_tokens=2))
    run.drain()
    idle(run)
    run.core.forget_all()


def between(log: list[str]) -> list[str]:
    """Copies to and from the host that no step computed beside."""
    return [what for what in log if what in ("read", "write")]


def test_a_slot_is_had_at_once_where_a_state_was_copied_beside_a_step() -> None:
    run, native = noting_run(n_slots=2, n_extra_states=1, n_ctx_total=400)
    warm(run)
    prompts = {name: prompt_of(i) for i, name in enumerate("abcd")}
    run.submit(request("a", prompts["a"], max_tokens=30))
    run.steps(4)
    native.log.clear()
    for name in "bcd":  # while a decodes, so the engine is never idle
        run.submit(request(name, prompts[name], max_tokens=3))
        while not isinstance(run.events[name][-1] if run.events[name] else None, FinishedEvent):
            run.step()
    assert "read beside" in native.log and not between(native.log)
    run.drain()
    check_answers(run, "b", "c", "d", prompts=prompts, n=3)
    run.check_all_ended()


def test_without_time_beside_steps_somebody_waits() -> None:
    """Negative control of the test above."""
    run, native = noting_run(n_slots=2, n_extra_states=1, n_ctx_total=400)
    warm(run)
    native.copies_beside_steps = False
    native.log.clear()
    run.submit(request("a", prompt_of(0), max_tokens=30))
    for i in (1, 2, 3):
        run.submit(request(f"{i}", prompt_of(i), max_tokens=3))
    run.drain()
    assert "read beside" not in native.log and "read" in between(native.log)


def test_a_long_prompt_is_kept_on_its_way_without_waiting() -> None:
    """Every slot is taken, by a running sequence or by another conversation's state."""
    run, native = noting_run(
        n_slots=2, n_extra_states=1, n_ctx_total=400, n_ctx_slot=100, checkpoint_step=8, checkpoint_gap=4
    )
    warm(run)
    others = [prompt_of(i) for i in range(2)]
    for i, prompt in enumerate(others):
        run.submit(request(f"o{i}", prompt, max_tokens=3))
    run.drain()
    idle(run)
    native.log.clear()
    long = prompt_of(5, 70)
    run.submit(request("long", long, max_tokens=3))
    run.drain()
    assert native.log.count("copy") >= 6 and native.log.count("read beside") >= 6
    assert not between(native.log)
    check_answers(run, "long", prompts={"long": long}, n=3)
    native.log.clear()
    for i, prompt in enumerate(others):  # their states stayed where they were
        run.submit(request(f"p{i}", (*prompt, *run.tokens(f"o{i}"), 41), max_tokens=3))
    run.step()
    assert not [what for what in native.log if what.startswith("write")]
    run.drain()
    assert all(run.last(f"p{i}").timings.prompt_n == 2 for i in range(2))
    run.check_all_ended()


def test_what_is_passed_leaves_before_what_others_go_on_from() -> None:
    """Agents take turns, one at a time: the next one's state is the oldest, and stays."""
    run, native = noting_run(n_slots=3, n_extra_states=1, n_ctx_total=600, n_ctx_slot=100)
    prompts = [prompt_of(i) for i in range(3)]
    for turn in range(4):
        for i in range(3):
            name = f"{turn}-{i}"
            native.log.clear()
            asked = request(name, prompts[i], max_tokens=3)
            run.submit(asked)
            run.drain()
            assert run.tokens(name) == expected(asked, run.limits)[0]
            if turn > 0:
                assert run.last(name).timings.prompt_n == 3
            if turn > 1:
                assert not between(native.log), f"turn {turn} of agent {i}"
            idle(run)
            prompts[i] = (*prompts[i], *run.tokens(name), 40 + i, turn)
    run.check_all_ended()


def test_agents_whose_thoughts_are_dropped_find_their_states_on_the_device() -> None:
    run, native = noting_run(n_slots=3, n_extra_states=1, n_ctx_total=600, n_ctx_slot=100, checkpoint_gap=1)
    prompts, starts = [prompt_of(i) for i in range(3)], [(9,)] * 3
    for turn in range(4):
        asked = [
            request(f"{turn}-{i}", (*prompts[i], 45, 46), max_tokens=3, boundaries=starts[i]) for i in range(3)
        ]
        native.log.clear()
        run.submit(*asked)
        run.step()
        if turn > 1:
            assert not between(native.log), f"turn {turn}"
        run.drain()
        idle(run)
        for i, each in enumerate(asked):
            assert run.tokens(each.id) == expected(each, run.limits)[0]
            if turn > 0:
                assert run.last(each.id).timings.cache_n == starts[i][-1] - 3, "to where its last answer started"
            # The answer, read again without its first token, which was a thought; then the next message.
            prompts[i] = (*prompts[i], 45, 46, *run.tokens(each.id)[1:], 41 + i, turn)
            prompts[i] = (*prompts[i][: starts[i][-1]], 30 + i, turn, 12)
            starts[i] = (*starts[i], len(prompts[i]))
    run.check_all_ended()


def test_agents_that_come_back_before_their_states_were_copied() -> None:
    """One copy for each of them: no state leaves for another's and comes back."""
    run, native = noting_run(n_slots=3, n_extra_states=1, n_ctx_total=600, n_ctx_slot=100)
    warm(run)
    prompts = [prompt_of(i) for i in range(3)]
    for turn in range(3):
        asked = [request(f"{turn}-{i}", prompt, max_tokens=2) for i, prompt in enumerate(prompts)]
        native.log.clear()
        run.submit(*asked)
        run.step()
        assert "write" not in native.log and native.log.count("read") <= 3
        run.drain()
        for i, each in enumerate(asked):
            assert run.tokens(each.id) == expected(each, run.limits)[0]
            prompts[i] = (*prompts[i], *run.tokens(each.id), 40 + i, turn)
    run.check_all_ended()


def begun(native: FakeNative, **limits: Any) -> tuple[EngineCore, Any]:
    """A core whose state slots are all taken, with a state that no host has and a step that computes."""
    core = EngineCore(Run(**limits).limits, native)
    for name, n in (("old", 2), ("new", 9)):
        core.submit(request(name, prompt_of(n), max_tokens=n))
        batch = core.begin()[1]
        while name == "old" and batch is not None:
            core.finish(native.step(batch))
            batch = core.begin()[1]
    return core, batch


FULL = {"n_slots": 1, "n_extra_states": 2, "max_spec": 0}


def copies(core: EngineCore, native: NotingNative, batch: Any) -> list[str]:
    """Of one step, however much time there is."""

    def beside() -> None:
        while core.copy_beside_step():
            core.check()

    native.log.clear()
    core.finish(native.step(batch, beside))
    core.check()
    return [what for what in native.log if what.endswith("beside")]


@pytest.fixture
def native() -> NotingNative:
    return slow(NotingNative(Run(**FULL).limits))


def slow(native: Native, seconds: float = SLOW) -> Native:
    """The device says that its steps take so long."""
    native.step_us = lambda _: seconds * 1e6
    return native


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A copy was timed before the engine began."""
    new = CopyTimes.__init__

    def init(self: CopyTimes) -> None:
        new(self)
        with self.timed():
            pass

    monkeypatch.setattr(CopyTimes, "__init__", init)
    return


def with_memory(core: EngineCore, n: int = 3) -> None:
    """Host memory for so many states."""
    host = core._admission.cache._kept.host
    for _ in range(n):
        assert host.allocate_ahead(1 << 30)


@pytest.mark.usefixtures("timed")
def test_states_are_copied_once(native: NotingNative) -> None:
    core, batch = begun(native, **FULL)
    with_memory(core)
    assert copies(core, native, batch) == ["read beside"] * 2
    batch = core.begin()[1]
    assert native.log.count("copy") == 1, "the state before the prompt's last token took the place of a copied one"
    assert copies(core, native, batch) == ["read beside"]
    assert copies(core, native, core.begin()[1]) == []


@pytest.mark.usefixtures("timed")
def test_no_memory_is_allocated_for_it(native: NotingNative) -> None:
    core, batch = begun(native, **FULL)
    assert copies(core, native, batch) == []


def test_not_before_a_copy_was_timed(native: NotingNative) -> None:
    core, batch = begun(native, **FULL)
    with_memory(core)
    assert copies(core, native, batch) == []


@pytest.mark.usefixtures("timed")
def test_not_beside_a_step_that_is_shorter(native: NotingNative) -> None:
    core, batch = begun(slow(native, 1e-9), **FULL)
    with_memory(core)
    assert copies(core, native, batch) == []


@pytest.mark.usefixtures("timed")
def test_what_a_step_has_computed_already_does_not_count(native: NotingNative) -> None:
    now = 0.0
    core = EngineCore(Run(**FULL).limits, native, clock=lambda: now)
    core.submit(request("old", max_tokens=2))
    while core.has_work:
        batch = core.begin()[1]
        core.finish(native.step(batch))
    core.submit(request("new", max_tokens=9))
    with_memory(core)
    for seconds, expected_copies in ((2 * SLOW, []), (0.0, ["read beside"] * 2)):
        batch = core.begin()[1]
        now += seconds
        assert copies(core, native, batch) == expected_copies


@pytest.mark.usefixtures("timed")
def test_not_where_slots_are_free(native: NotingNative) -> None:
    limits = {**FULL, "n_extra_states": 4}
    native = slow(NotingNative(Run(**limits).limits))
    core, batch = begun(native, **limits)
    with_memory(core)
    assert copies(core, native, batch) == []


@pytest.mark.usefixtures("timed")
def test_not_on_a_device_that_does_one_after_the_other(native: NotingNative) -> None:
    native.copies_beside_steps = False
    core, batch = begun(native, **FULL)
    with_memory(core)
    assert copies(core, native, batch) == []


@pytest.mark.usefixtures("timed")
def test_a_checkpoint_that_is_forgotten_while_the_step_computes(native: NotingNative) -> None:
    core, batch = begun(native, **FULL)
    with_memory(core)

    def beside() -> None:
        assert core.copy_beside_step()
        core.forget_all()
        assert not core.copy_beside_step()

    core.finish(native.step(batch, beside))
    core.check()
    while core.has_work:
        core.finish(native.step(core.begin()[1]))
    core.forget_all()
    core.check()


def test_the_fake_device_refuses_slots_of_the_step() -> None:
    """What the tests above and those of random conversations rest on."""
    run, native = noting_run(n_slots=1)
    run.submit(request())
    _, batch = run.core.begin()
    slot = int(batch.seqs["state_slot"][0])
    for call in (lambda: native.state_read(slot), lambda: native.host_memory(1), lambda: native.state_copy(slot, 0)):
        with pytest.raises(AssertionError, match="comput"):
            native.step(batch, call)


class BrokenCopies(FakeNative):
    """The device fails while a state is copied beside a step."""

    def state_read(self, slot: int, out: np.ndarray | None = None) -> np.ndarray:
        if self.computing is not None:
            raise RuntimeError("the device fell off the bus")
        return super().state_read(slot, out)


def run_loop(core: EngineCore, native: FakeNative, *names: str) -> tuple[EngineLoop, list[Event]]:
    """One request after the other, and one beside the last."""
    events: list[Event] = []
    ended = threading.Semaphore(0)

    def sink(news: list[Event]) -> None:
        events.extend(news)
        for event in news:
            if isinstance(event, (FinishedEvent, FailedEvent)):
                ended.release()

    loop = EngineLoop(core, native, sink, lambda _number, _answer: None)
    loop.prepare()
    thread = threading.Thread(target=loop.run)
    thread.start()
    for i, name in enumerate(names):
        loop.post(Submit(request(name, prompt_of(i), max_tokens=6)))
        assert ended.acquire(timeout=30)
    loop.post(Stop())
    thread.join(30)
    assert not thread.is_alive()
    return loop, events


def loop_limits(**fields: Any) -> Any:
    return Run(**{**FULL, "host_bytes": 4000, **fields}).limits


@pytest.mark.usefixtures("timed")
def test_a_device_that_fails_beside_a_step_ends_all_requests() -> None:
    limits = loop_limits()
    native = slow(BrokenCopies(limits))
    core = EngineCore(limits, native)
    loop, events = run_loop(core, native, "a")
    assert isinstance(events[-1], FailedEvent) and "fell off the bus" in events[-1].message
    assert loop.error is not None and native.closed


class OrderedCore(EngineCore):
    """Writes down when a step is planned, tokens are told, and what is copied beside it is chosen."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log: list[str] = []

    def begin(self) -> Any:
        self.log.append("begin")
        return super().begin()

    def settle(self) -> list[Event]:
        self.log.append("tell")
        return super().settle()

    def copy_beside_step(self) -> bool:
        self.log.append("copy")
        return super().copy_beside_step()


@pytest.mark.usefixtures("timed")
def test_tokens_are_told_before_states_are_copied() -> None:
    limits = loop_limits()
    native = slow(NotingNative(limits))
    core = OrderedCore(limits, native)
    _, events = run_loop(core, native, "a", "b")
    assert sum(isinstance(event, TokenEvent) for event in events) == 12
    assert "read beside" in native.log
    before_copies = [core.log[i - 1] for i, what in enumerate(core.log) if what == "copy"]
    assert before_copies and set(before_copies) <= {"tell", "copy"}


def test_times_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(copy_times.time, "perf_counter", lambda: now[0])
    times = CopyTimes()
    assert not times.fit(1e9)
    for seconds in (5.0, 5.0, 5.0, 90.0, 1.0):
        with times.timed():
            now[0] += seconds
    assert times.fit(5.0) and not times.fit(4.9)
    for _ in range(3):
        with times.timed():
            now[0] += 7.0
    assert times.fit(7.0) and not times.fit(6.9)
