"""What the debug log says of idle slots; llama-server's test suite looks for these marks."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

import pytest

from pyjet.server.idle_slots import IdleSlots
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, post, said

ENABLED, IDLE = "__TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__", "__TEST_TAG_CACHE_IDLE_SLOT__"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="pyjet.server.idle_slots")
    return caplog


def drain(log: pytest.LogCaptureFixture) -> str:
    text = log.text
    log.clear()
    return text


def test_a_slot_is_told_once_until_it_is_used_again(log: pytest.LogCaptureFixture) -> None:
    slots = IdleSlots(enabled=True)
    assert ENABLED in drain(log)
    slots.started(0)
    slots.finished(0, 9)
    assert IDLE not in drain(log)
    slots.started(1)
    text = drain(log)
    assert f"slot 0 is idle, the cache keeps its prompt {IDLE}" in text
    assert "updating prompt cache with 9 tokens of slot 0" in text
    slots.finished(1, 9)
    slots.started(1)
    assert IDLE not in drain(log)


def test_it_is_in_the_log_before_the_next_request_is_computed(log: pytest.LogCaptureFixture) -> None:
    engine = ScriptedEngine(said("Hi"), said("Hi"), n_slots=2)
    client = make_client(engine)
    post(client, "/completion", {"prompt": "x", "id_slot": 0})
    assert IDLE not in drain(log)
    engine.say(replace(said("Hi"), pause_after=0))
    asking = threading.Thread(target=post, args=(client, "/completion", {"prompt": "y", "id_slot": 1}))
    asking.start()
    try:
        deadline = time.monotonic() + 5
        while "updating prompt cache" not in log.text and time.monotonic() < deadline:
            time.sleep(0.01)
        assert IDLE in log.text and "updating prompt cache" in log.text
    finally:
        engine.resume.set()
        asking.join()


@pytest.mark.parametrize("options", [{"cache_idle_slots": False}, {"cache_ram": 0}])
def test_switched_off(log: pytest.LogCaptureFixture, options: dict[str, int]) -> None:
    make_client(ScriptedEngine(said("Hi")), **options)
    assert ENABLED not in drain(log)
    slots = IdleSlots(enabled=False)
    slots.finished(0, 9)
    slots.started(1)
    assert IDLE not in drain(log)
