"""An engine that hangs is noticed from outside, said once, and forgiven when it goes on."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pyjet.engine.local import LocalEngine
from pyjet.engine.process import EngineProcess
from pyjet.engine.stall import LOST_PULSES, PULSE_SECONDS, PulseWatch, RunningStep, StepClock, hung_step, patience
from pyjet.native.step import SEQ_DTYPE, StepBatch
from tests.engine.core_run import expected, request
from tests.engine.fake_native import LIMITS, HangingNative, fake_factory
from tests.engine.test_process import settings, tokens, wait_for


class Time:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def batch(n_rows: int, n_sequences: int) -> StepBatch:
    rows = np.zeros(n_rows, np.int32)
    return StepBatch(rows, rows, rows, rows.astype(np.uint32), np.zeros(n_sequences, SEQ_DTYPE), rows)


def test_the_step_that_runs_and_its_age() -> None:
    time = Time()
    clock = StepClock(time)
    assert clock.running() is None
    clock.begin()
    time.now += 2
    assert str(clock.running()) == "step 0 (being planned)"
    clock.compute(batch(7, 3))
    time.now += 3
    assert clock.running() == RunningStep(0, 7, 3, 5.0), "planning counts too"
    clock.end()
    assert clock.running() is None
    clock.begin()
    assert clock.running() == RunningStep(1, 0, 0, 0.0)


def test_slow_machines_have_more_patience() -> None:
    assert patience(120.0, ()) == patience(120.0, ((1, 0.01), (512, 2.0))) == 120.0
    assert patience(120.0, ((1, 0.5), (512, 60.0))) == 1200.0


@pytest.mark.parametrize(("age", "more", "is_hung"), [(9.0, 0.0, False), (10.5, 0.0, True), (9.0, 2.0, True)])
def test_a_step_that_takes_too_long(age: float, more: float, is_hung: bool) -> None:
    text = hung_step(RunningStep(5, 12, 4, age), 10.0, more)
    assert (text is not None) == is_hung
    if text is not None:
        assert text.startswith("step 5 (12 rows of 4 requests) has been running for 1") and "10 s" in text
    assert hung_step(None, 10.0, 1000.0) is None


def test_pulses() -> None:
    time = Time()
    watch = PulseWatch(time)
    time.now += 1000
    assert watch.verdict(10.0) is None, "it is not ready yet"
    watch.note(RunningStep(0, 1, 1, 500.0))
    assert watch.verdict(10.0) is None, "a pulse of a child that is gone"
    watch.start()
    for _ in range(100):
        time.now += 1
        watch.note(RunningStep(3, 1, 1, 0.5))
        assert watch.verdict(10.0) is None
    time.now += 9.6
    assert "step 3" in (watch.verdict(10.0) or ""), "the step was half a second old when the process fell silent"
    watch.note(None)
    assert watch.verdict(10.0) is None
    time.now += 10.5
    assert watch.verdict(10.0) == "its process has said nothing for 10 s"
    watch.stop()
    assert watch.verdict(10.0) is None


def test_late_pulses_are_no_silence() -> None:
    time = Time()
    watch = PulseWatch(time)
    watch.start()
    time.now += LOST_PULSES * PULSE_SECONDS
    assert watch.verdict(0.1) is None
    time.now += 0.1
    assert watch.verdict(0.1) is not None


@pytest.fixture
def go_on(tmp_path: Path) -> Iterator[Path]:
    """The file that ends the hang; it is there in the end, whatever fails."""
    path = tmp_path / "go-on"
    yield path
    path.touch()


def test_a_hanging_step_in_the_engines_process(go_on: Path, caplog: pytest.LogCaptureFixture) -> None:
    impatient = replace(settings(f"hang:{go_on}-at-2"), patience_seconds=0.5)
    with caplog.at_level(logging.WARNING, "pyjet.engine.process"), EngineProcess(
        impatient, factory=fake_factory
    ) as engine:
        assert engine.wait_ready(30)
        assert engine.stall is None
        stream = engine.submit(request())
        wait_for(lambda: engine.stall is not None)
        assert "step 2 (1 rows of 1 requests) has been running" in (engine.stall or "")
        assert engine.state == "ready" and len(engine.slots()) == 3, "it may recover, and monitoring answers"
        wait_for(lambda: "the engine hangs: step 2" in caplog.text)
        go_on.touch()
        assert tokens(stream) == expected(request())[0]
        wait_for(lambda: engine.stall is None and "the engine goes on" in caplog.text)
    assert caplog.text.count("the engine hangs") == 1


@pytest.mark.slow
def test_a_process_that_stands_still(caplog: pytest.LogCaptureFixture) -> None:
    impatient = replace(settings(), patience_seconds=0.5)
    with EngineProcess(impatient, factory=fake_factory) as engine:
        assert engine.wait_ready(30) and engine.pid is not None
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: engine.stall is not None)
            assert "its process has said nothing for" in (engine.stall or "")
            wait_for(lambda: "the engine hangs" in caplog.text)
        finally:
            os.kill(engine.pid, signal.SIGCONT)
        wait_for(lambda: engine.stall is None)
        assert tokens(engine.submit(request())) == expected(request())[0]


def test_a_hanging_step_on_a_thread(go_on: Path) -> None:
    limits = replace(LIMITS, patience_seconds=0.05)
    with LocalEngine(HangingNative(limits, 1, go_on), limits) as engine:
        stream = engine.submit(request())
        wait_for(lambda: engine.stall is not None)
        threading.Timer(0.01, go_on.touch).start()
        assert tokens(stream) == expected(request())[0]
        wait_for(lambda: engine.stall is None)
