"""--timeout and slow clients on real sockets: what is silent is closed, what moves or works is left alone."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from pyjet.server import http
from pyjet.server.http_channel import Channel
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.raw_http import RawClient
from tests.server.scripted import ids, make_service, said

DEADLINE = 10.0
LONG = Script(ids("word ") * 2000, batch=64)  # far more bytes than sockets and buffers hold
ENDLESS = Script(LONG.tokens, batch=64, delay=0.001, repeat=True)
BODY = {"prompt": "a", "stream": True, "n_predict": -1, "timings_per_token": True}


@pytest.fixture
def engine() -> ScriptedEngine:
    # no context, however long, ends a text before its reader is given up
    return ScriptedEngine(said("Hello there"), n_ctx_slot=1 << 50)


@pytest.fixture
def port(engine: ScriptedEngine) -> Iterator[int]:
    with serving(make_service(engine, timeout=1)) as port:
        yield port


def connect(port: int) -> RawClient:
    return RawClient(port, timeout=DEADLINE)


@pytest.mark.parametrize("sent", [
    b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: x\r\n",
    b"POST /completion HTTP/1.1\r\nContent-Length: 50\r\n\r\n{",
    b"POST /completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pr",
])  # fmt: skip
def test_a_request_that_never_comes_is_given_up(port: int, sent: bytes) -> None:
    with connect(port) as client:
        client.send(sent)
        assert client.is_closed()


def test_a_request_that_comes_slowly_is_waited_for(port: int) -> None:
    body = b'{"prompt":"a"}'
    with connect(port) as client:
        for part in (b"POST /completion HTTP/1.1\r\n", b"Content-Length: %d\r\n\r\n" % len(body), *(
                body[start:start + 4] for start in range(0, len(body), 4))):  # fmt: skip
            client.send(part)
            time.sleep(0.4)
        answer = client.answer()
        assert answer is not None and answer.json["content"] == "Hello there"


def test_a_stream_with_long_pauses_goes_on(engine: ScriptedEngine, port: int) -> None:
    engine.say(said("one two", delay=1.6))
    with connect(port) as client:
        answer = client.request("POST", "/completion", b'{"prompt":"a","stream":true,"sse_ping_interval":-1}')
        assert answer.body.count(b"data:") >= 2 and b'"stop":true' in answer.body
        assert client.request("GET", "/health").status == 200
    assert engine.cancels == []


def test_an_idle_connection_stays_for_the_next_request(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between requests the timeout is not the measure: clients keep connections in a pool."""
    with connect(port) as client:
        assert client.request("GET", "/health").status == 200
        time.sleep(2.5)
        assert client.request("GET", "/health").status == 200
        monkeypatch.setattr(http, "IDLE_SECONDS", 0.5)
        assert client.is_closed()


def test_a_reader_that_stops_is_given_up(engine: ScriptedEngine, port: int) -> None:
    """Its output waits in buffers of limited size; then the work ends and the slot is free.

    What was sent and not taken is dropped with the connection: a reader that comes back finds a failure, at once, and
    not what looks like an answer's end.
    """
    engine.say(ENDLESS)
    with open_request(port, "/completion", BODY) as connection:
        read_until(connection, b"data:")
        assert engine.wait_idle(60), "the work goes on for nobody"
        with pytest.raises(ConnectionResetError):
            while connection.recv(1 << 20):
                pass


def test_a_closed_connection_does_not_take_a_new_one_with_it(
    engine: ScriptedEngine, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes in the round that gives another up may get the other's descriptor."""
    engine.say(ENDLESS)
    with open_request(port, "/completion", BODY), socket.socket() as new, contextlib.ExitStack() as fillers:
        give_up, called = Channel.give_up, threading.Event()

        def give_up_and_be_called(channel: Channel) -> None:
            descriptor = channel.socket.fileno()
            give_up(channel)
            fill_descriptors(descriptor, fillers)
            new.connect(("127.0.0.1", port))
            new.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            called.set()

        monkeypatch.setattr(Channel, "give_up", give_up_and_be_called)
        assert called.wait(60)
        new.settimeout(DEADLINE)
        assert read_until(new, b"\r\n\r\n").startswith(b"HTTP/1.1 200")


def fill_descriptors(free: int, fillers: contextlib.ExitStack) -> None:
    """Make ``free`` the lowest descriptor that is not in use, so that the next socket gets it."""
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) < free:
        fillers.callback(os.close, descriptor)
    os.close(descriptor)


def test_a_reader_that_stops_for_a_while_holds_the_work_back(engine: ScriptedEngine) -> None:
    """The server keeps about a buffer's worth for it, and the rest comes when it reads again."""
    engine.say(LONG)
    with serving(make_service(engine, timeout=600)) as port, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(DEADLINE)
        connection.connect(("127.0.0.1", port))
        body = b'{"prompt":"a","stream":true,"n_predict":2000,"timings_per_token":true}'
        connection.sendall(b"POST /completion HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data = read_until(connection, b"data:")
        time.sleep(1.0)
        data += read_until(connection, b"\r\n0\r\n\r\n")
    assert data.count(b"data:") >= 2000
