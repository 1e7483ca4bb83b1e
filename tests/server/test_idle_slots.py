"""What the debug log says of idle slots; llama-server's test suite looks for these marks."""

from __future__ import annotations

import logging

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
    text = drain(log)
    assert IDLE not in text and "updating prompt cache" in text
    slots.started(1)
    assert f"slot 0 is idle, the cache keeps its prompt {IDLE}" in drain(log)
    slots.finished(1, 9)
    slots.started(1)
    assert IDLE not in drain(log)


def test_requests_tell_their_slots(log: pytest.LogCaptureFixture) -> None:
    client = make_client(ScriptedEngine(said("Hi"), n_slots=2))
    for _ in range(2):  # the scripted engine takes the first free slot
        post(client, "/completion", {"prompt": "x"})
    assert drain(log).count("updating prompt cache") == 2


@pytest.mark.parametrize("options", [{"cache_idle_slots": False}, {"cache_ram": 0}])
def test_switched_off(log: pytest.LogCaptureFixture, options: dict[str, int]) -> None:
    make_client(ScriptedEngine(said("Hi")), **options)
    assert ENABLED not in drain(log)
    slots = IdleSlots(enabled=False)
    slots.finished(0, 9)
    slots.started(1)
    assert IDLE not in drain(log)
