"""The engine's own process: requests, death, restart, giving up, and an orphaned child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyjet.engine.client import RequestStream
from pyjet.engine.counters import Counters
from pyjet.engine.process import EngineProcess, add_counters, how_it_ended
from pyjet.engine.request import FailedEvent, FinishedEvent, SamplingParams, TokenEvent
from pyjet.engine.restarts import RestartPolicy
from pyjet.engine.settings import EngineSettings
from tests.engine.core_run import expected, request
from tests.engine.fake_native import N_VOCAB, fake_factory

ROOT = Path(__file__).parents[2]


def settings(how: str = "fine") -> EngineSettings:
    return EngineSettings(how, n_slots=3, n_ctx_slot=40, n_ctx_total=120, n_ubatch=8, page_tokens=4)


def start(how: str = "fine", **fields) -> EngineProcess:
    return EngineProcess(settings(how), factory=fake_factory, **fields)


def tokens(stream: RequestStream) -> list[int]:
    return [event.token for event in stream if isinstance(event, TokenEvent)]


def wait_for(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def test_requests_slots_counters_and_close() -> None:
    stages: list[tuple[str, int, int]] = []
    engine = start(on_progress=lambda *stage: stages.append(stage))
    assert engine.state == "loading"
    assert engine.submit(request("early")).get(5) == FailedEvent("early", "Loading model", "unavailable")
    assert [view.id for view in engine.slots()] == [0, 1, 2]
    assert engine.wait_ready(30)
    assert stages[0] == ("packing weights", 0, 10) and stages[-1] == ("packing weights", 10, 10)
    assert engine.limits.n_vocab == N_VOCAB
    wanted = [request(f"r{i}", prompt=(i, 3), sampling=SamplingParams(seed=i)) for i in range(6)]
    streams = [engine.submit(r) for r in wanted]
    assert [tokens(s) for s in streams] == [expected(r)[0] for r in wanted]
    assert sum(view.id_task >= 0 for view in engine.slots()) == 3
    assert len(engine.slots(with_tokens=True)[0].generated) == 4
    assert engine.counters().predicted_tokens == 24
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGTERM)  # meant for the parent, which will say Stop
    assert tokens(engine.submit(request("more"))) == expected(request("more"))[0]
    engine.close()
    engine.close()
    assert engine.state == "stopped"
    assert isinstance(engine.submit(request("late")).get(5), FailedEvent)


def test_cancel_reaches_the_child() -> None:
    with start("slow") as engine:
        assert engine.wait_ready(30)
        stream = engine.submit(request(max_tokens=-1))
        while not isinstance(stream.get(5), TokenEvent):
            pass
        engine.cancel("a", keep_tokens=1)
        last = list(stream)[-1]
        assert isinstance(last, FinishedEvent)
        assert (last.reason, last.timings.predicted_n) == ("cancelled", 1)


@pytest.mark.parametrize(
    ("how", "words"), [("exit-at-6", "killed by SIGKILL"), ("fail-at-6", "the device fell off the bus")]
)
def test_death_fails_requests_in_flight_and_starts_again(how: str, words: str) -> None:
    with start(how, restarts=RestartPolicy(delay=0.01)) as engine:
        assert engine.wait_ready(30)
        first_pid = engine.pid
        assert tokens(engine.submit(request("before"))) == expected(request("before"))[0]
        failed = list(engine.submit(request("victim", max_tokens=20)))[-1]
        assert isinstance(failed, FailedEvent)
        assert failed.kind == "unavailable" and words in failed.message
        wait_for(lambda: engine.pid != first_pid and engine.state == "ready")
        assert tokens(engine.submit(request("after"))) == expected(request("after"))[0]
        counters = engine.counters()
        assert counters.engine_restarts == 1 and counters.predicted_tokens >= 8


def test_gives_up_when_it_dies_too_often() -> None:
    with start("fail-at-0", restarts=RestartPolicy(limit=1, delay=0.01)) as engine:
        assert engine.wait_ready(30)
        list(engine.submit(request("one")))
        wait_for(lambda: engine.counters().engine_restarts == 1 and engine.state == "ready")
        list(engine.submit(request("two")))
        wait_for(lambda: engine.state == "failed")
        assert "fell off the bus" in (engine.error or "")
        assert "fell off the bus" in engine.submit(request("three")).get(5).message


def test_model_that_cannot_load_is_not_retried() -> None:
    with start("bad-model") as engine:
        assert not engine.wait_ready(30)
        assert (engine.state, engine.error) == ("failed", "tensor blk.0.ffn_up.weight is missing")


def test_engine_that_fails_after_the_model_is_loaded_says_so() -> None:
    """What computes steps has no pages here."""
    with start("no-pages") as engine:
        assert not engine.wait_ready(30)
        assert engine.state == "failed" and "page_bytes" in (engine.error or "")


def test_child_ends_when_its_parent_is_killed() -> None:
    code = (
        "import time\n"
        "from tests.engine.test_process import start\n"
        "if __name__ == '__main__':\n"
        "    engine = start()\n"
        "    assert engine.wait_ready(30)\n"
        "    print(engine.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not is_running(child))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_restart_policy_waits_longer_each_time_and_forgets() -> None:
    now = [0.0]
    policy = RestartPolicy(limit=3, window=60, delay=1, clock=lambda: now[0])
    assert [policy.next_delay() for _ in range(4)] == [1, 2, 4, None]
    now[0] = 61.0
    assert policy.next_delay() == 1


def test_counters_of_dead_engines_are_kept() -> None:
    past = Counters(
        predicted_tokens=5, n_tokens_max=9, requests_processing=2, queue_seconds=1.5, host_bytes=10,
        accepted_per_position=(1,),
    )  # fmt: skip
    now = Counters(
        predicted_tokens=3, n_tokens_max=4, requests_processing=1, queue_seconds=0.5, host_bytes=4, checkpoints=2,
        accepted_per_position=(2, 3),
    )  # fmt: skip
    total = add_counters(past, now)
    assert (total.predicted_tokens, total.n_tokens_max, total.requests_processing) == (8, 9, 1)
    assert total.accepted_per_position == (3, 3)
    assert (total.queue_seconds, total.host_bytes, total.checkpoints) == (2.0, 4, 2), "gauges are the living engine's"


def test_exit_status_in_words() -> None:
    assert how_it_ended(-9) == "was killed by SIGKILL"
    assert how_it_ended(3) == "ended with status 3"
