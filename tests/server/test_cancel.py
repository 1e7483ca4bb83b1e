"""Clients that leave: streaming, waiting, queued, in prefill. The slot must be free at once."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

import pytest
import requests

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.scripted import ids, make_service, said

HANGS = 20.0  # seconds; what is waited for would else never come, or later
ENDLESS = Script([5], repeat=True, delay=0.01)
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/completion", {"prompt": "a"}),
    ("/v1/completions", {"prompt": "a"}),
    ("/v1/chat/completions", CHAT),
]


def wait_until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.parametrize(("path", "body"), REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
def test_leaving_while_tokens_come(path: str, body: dict[str, Any], stream: bool) -> None:
    engine = ScriptedEngine(ENDLESS)
    with serving(make_service(engine)) as port:
        connection = open_request(port, path, {**body, "stream": stream})
        if stream:
            read_until(connection, b"data: ")
        assert wait_until(lambda: engine.slots()[3].n_decoded > 5, HANGS)
        connection.close()
        assert engine.wait_idle(HANGS)
    assert engine.cancels == [(engine.requests[0].id, None)]


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_by_reset(stream: bool) -> None:
    engine = ScriptedEngine(ENDLESS)
    with serving(make_service(engine)) as port:
        connection = open_request(port, "/completion", {"prompt": "a", "stream": stream})
        assert wait_until(lambda: engine.slots()[3].n_decoded > 2, HANGS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        assert engine.wait_idle(HANGS)


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_during_prefill(stream: bool) -> None:
    engine = ScriptedEngine(said("x", prefill_delay=30))
    with serving(make_service(engine)) as port:
        connection = open_request(port, "/completion", {"prompt": "a", "stream": stream})
        assert wait_until(lambda: any(slot.is_processing for slot in engine.slots()), HANGS)
        connection.close()
        assert engine.wait_idle(HANGS)


@pytest.mark.parametrize("stream", [True, False])
def test_queued_requests_of_gone_clients_never_run(stream: bool) -> None:
    engine = ScriptedEngine(ENDLESS, ENDLESS, said("last"), n_slots=1)
    engine.say(*[ENDLESS] * 10, said("last"))
    with serving(make_service(engine)) as port:
        waiting = [open_request(port, "/completion", {"prompt": "a", "stream": stream})]
        assert wait_until(lambda: len(engine.requests) == 1, HANGS)
        for n in range(2, 11):
            waiting.append(open_request(port, "/completion", {"prompt": "a", "stream": stream}))
            assert wait_until(lambda n=n: len(engine.requests) == n, HANGS)
        last = open_request(port, "/completion", {"prompt": "a"})
        assert wait_until(lambda: len(engine.requests) == 11, HANGS)
        running, *queued = waiting
        for connection in queued:
            connection.close()
        assert wait_until(lambda: len(engine.cancels) == len(queued), HANGS)
        running.close()
        assert b'"content":"last"' in read_until(last, b'"timings"')
        last.close()
        assert engine.wait_idle(HANGS)
    assert sum(event.slot >= 0 for event in engine.finished.values()) == 2


def test_every_choice_is_cancelled() -> None:
    engine = ScriptedEngine(ENDLESS)
    with serving(make_service(engine)) as port:
        connection = open_request(port, "/completion", {"prompt": ["a", "b"], "n": 2, "stream": True})
        read_until(connection, b"data: ")
        connection.close()
        assert engine.wait_idle(HANGS)
    assert len(engine.requests) == 4


def test_headers_leave_before_the_first_token() -> None:
    engine = ScriptedEngine(said("x", pause_after=0))
    with serving(make_service(engine)) as port:
        connection = open_request(port, "/completion", {"prompt": "a", "stream": True})
        head = read_until(connection, b"\r\n\r\n")
        engine.resume.set()
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"text/event-stream" in head and b"data:" not in head
        assert b'"stop":true' in read_until(connection, b"\r\n0\r\n\r\n")
        connection.close()


def test_one_http_chunk_per_result_and_keep_alive() -> None:
    engine = ScriptedEngine(said("Hello you"))
    with serving(make_service(engine)) as port:
        connection = open_request(port, "/v1/chat/completions", {**CHAT, "stream": True})
        _, _, body = read_until(connection, b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")
        chunks = []
        while True:
            size, _, body = body.partition(b"\r\n")
            if size == b"0":
                break
            chunks.append(body[: int(size, 16)])
            body = body[int(size, 16) + 2 :]
        assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks)
        assert chunks[0].count(b"data: ") >= 1 and chunks[-1] == b"data: [DONE]\n\n"
        request = json.dumps({"prompt": "a"}).encode()
        head = f"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: {len(request)}\r\n\r\n".encode()
        connection.sendall(head + request)
        assert b"HTTP/1.1 200 OK" in read_until(connection, b'"timings"')
        connection.close()


@pytest.mark.parametrize("stream", [True, False])
def test_half_closed_connections_get_their_answer(stream: bool) -> None:
    engine = ScriptedEngine(said("Hello", delay=0.2))
    with serving(make_service(engine)) as port:
        connection = open_request(port, "/completion", {"prompt": "a", "stream": stream})
        connection.shutdown(socket.SHUT_WR)
        assert b'"stop":true' in read_until(connection, b'"timings":')
        connection.close()


def test_a_slow_reader_gets_whole_frames() -> None:
    text = "".join(chr(0x4E00 + n % 500) + "🙂" for n in range(200))
    engine = ScriptedEngine(said(text, batch=16))
    with serving(make_service(engine)) as port:
        connection = open_request(port, "/completion", {"prompt": "a", "stream": True})
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += connection.recv(997)
        connection.close()
    frames = [line for line in data.split(b"\r\n") if line.startswith(b"data: ")]
    assert "".join(json.loads(frame[6:])["content"] for frame in frames) == text


def test_a_long_wait_without_stream_is_answered() -> None:
    engine = ScriptedEngine(Script([*ids("Hello")], repeat=True, delay=0.05))
    with serving(make_service(engine)) as port:
        answer = requests.post(f"http://127.0.0.1:{port}/completion", json={"prompt": "a", "n_predict": 40}, timeout=20)
        assert answer.json()["tokens_predicted"] == 40
    assert engine.cancels == []
