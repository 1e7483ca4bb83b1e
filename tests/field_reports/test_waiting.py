"""Reports about requests that wait, hang, starve each other or are left behind, as far as the server decides them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import requests

from tests.field_reports.force import CHAT, HI, MESSAGES, RESPONSES, TOOLS
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.scripted import make_service, said
from tests.server.test_cancel import wait_until

SHORT_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/completion", {"prompt": "a"}),
    ("/v1/completions", {"prompt": "a"}),
    (CHAT, {"messages": HI}),
    (CHAT, {"messages": HI, "tools": TOOLS, "stream": True}),
    (MESSAGES, {"messages": HI, "max_tokens": 9, "stream": True}),
    (RESPONSES, {"input": "Hi"}),
    ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
]
WITHOUT_ENGINE: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/health", {}), ("GET", "/slots", {}), ("GET", "/props", {}), ("GET", "/v1/models", {}),
    ("GET", "/metrics", {}), ("POST", "/tokenize", {"content": "a"}), ("POST", "/detokenize", {"tokens": [5]}),
    ("POST", "/apply-template", {"messages": HI}), ("POST", "/v1/messages/count_tokens", {"messages": HI}),
]  # fmt: skip


def test_many_requests_of_all_kinds_beside_a_long_one() -> None:
    """With one slot they queue and run in their order; what needs no slot is answered meanwhile."""
    n_times = 3
    engine = ScriptedEngine(Script([5], repeat=True, delay=0.01), n_slots=1)
    engine.say(Script([5], repeat=True, delay=0.01), said("</think>\n\nHello"))
    service = make_service(engine, metrics=True)
    with serving(service) as port:
        url = f"http://127.0.0.1:{port}"
        running = open_request(port, "/completion", {"prompt": "a", "stream": True})
        read_until(running, b"data:")
        answers: list[requests.Response | None] = [None] * (n_times * len(SHORT_REQUESTS))

        def ask(number: int) -> None:
            path, body = SHORT_REQUESTS[number % len(SHORT_REQUESTS)]
            answers[number] = requests.post(url + path, json=body, timeout=30)

        threads = []
        for number in range(len(answers)):
            threads.append(threading.Thread(target=ask, args=(number,)))
            threads[-1].start()
            assert wait_until(lambda n=number: len(engine.requests) == n + 2, 10)
        for method, path, body in WITHOUT_ENGINE:
            answer = requests.request(method, url + path, json=body or None, timeout=5)
            assert answer.status_code == 200, path
        assert answers == [None] * len(answers), "none of them jumped the queue"
        running.close()
        for thread in threads:
            thread.join(30)
        assert all(answer is not None and answer.status_code == 200 for answer in answers)
    begun = [request.id for request in engine.requests]
    assert list(engine.finished) == begun, "first come, first served"


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_the_first_bytes_do_not_wait_for_the_prompt(path: str) -> None:
    body: dict[str, Any] = {"input": "Hi"} if path == RESPONSES else {"messages": HI}
    engine = ScriptedEngine(said("x", prefill_delay=3600))
    with serving(make_service(engine, sse_ping_interval=1)) as port:
        connection = open_request(port, path, {**body, "stream": True})
        connection.settimeout(5)
        head = read_until(connection, b"\r\n\r\n")
        assert b" 200 OK\r\n" in head and b"text/event-stream" in head
        assert b":\n\n" in read_until(connection, b":\n\n")
        connection.close()
        assert engine.wait_idle(2)


def test_work_that_takes_longer_than_the_timeout_is_answered() -> None:
    """--timeout is about connections on which nothing moves, not about how long an answer takes."""
    engine = ScriptedEngine(said("</think>\n\nHello", prefill_delay=3.5))
    with serving(make_service(engine, timeout=1)) as port:
        answer = requests.post(f"http://127.0.0.1:{port}{CHAT}", json={"messages": HI}, timeout=30)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert engine.cancels == []


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, "/infill"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("prefill", [0.0, 3600.0])
def test_work_for_clients_that_left_ends(path: str, streamed: bool, prefill: float) -> None:
    body = {CHAT: {"messages": HI}, MESSAGES: {"messages": HI}, RESPONSES: {"input": "Hi"},
            "/infill": {"input_prefix": "a", "input_suffix": "b"}}[path]  # fmt: skip
    engine = ScriptedEngine(Script([5], repeat=True, delay=0.01, prefill_delay=prefill))
    with serving(make_service(engine)) as port:
        connection = open_request(port, path, {**body, "stream": streamed})
        assert wait_until(lambda: any(slot.is_processing for slot in engine.slots()), 5)
        connection.close()
        assert engine.wait_idle(2)
    assert [number for number, _ in engine.cancels] == [engine.requests[0].id]
