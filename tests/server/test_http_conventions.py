"""Headers, connections and paths on the wire, as llama-server has them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
import requests

from pyjet.server.app import MAX_BODY_BYTES
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.raw_http import RawClient
from tests.server.scripted import ids, make_service, said

NOT_FOUND = {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(said("Hello there"))


@pytest.fixture(scope="module")
def port(engine: ScriptedEngine) -> Iterator[int]:
    with serving(make_service(engine)) as port:
        yield port


@pytest.fixture
def client(port: int) -> Iterator[RawClient]:
    with RawClient(port) as client:
        yield client


def test_success(client: RawClient) -> None:
    for _ in range(3):  # on one connection
        answer = client.request("GET", "/health")
        assert answer.line == "HTTP/1.1 200 OK"
        assert answer.body == b'{"status":"ok"}'
        assert answer.headers == {
            "server": "llama.cpp",
            "content-type": "application/json; charset=utf-8",
            "content-length": "15",
            "access-control-allow-origin": "",
            "keep-alive": "timeout=5, max=100",
        }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("POST", "/health", 404),
        ("GET", "/metrics", 501),
        ("POST", "/props", 501),
        ("POST", "/slots/0?action=save", 501),
        ("GET", "/tools", 403),
        ("POST", "/completion", 400),
        ("PUT", "/x", 404),
    ],
)
def test_errors_close_the_connection(client: RawClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path, b"" if method == "GET" else b"{}")
    assert answer.status == status
    assert answer.headers["connection"] == "close" and "keep-alive" not in answer.headers
    assert answer.headers["server"] == "llama.cpp" and "date" not in answer.headers
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert client.is_closed()


@pytest.mark.parametrize(
    "path",
    "/ /health /v1/health /models /v1/models /props /slots /lora-adapters /index.html /sw.js".split(),
)
def test_head_on_every_get_route(client: RawClient, path: str) -> None:
    full = client.request("GET", path)
    head = client.request("HEAD", path)
    assert full.status == head.status == 200
    if path not in ("/models", "/v1/models"):
        assert head.headers == full.headers
    assert client.request("GET", "/health").status == 200, "no body follows a HEAD"


@pytest.mark.parametrize(
    "path",
    "/health/ //health /HEALTH /%68ealth /v1//models /v1/models/ /models/sse /slots/ /. * ///// /%2Fhealth".split(),
)
def test_other_spellings_are_unknown(client: RawClient, path: str) -> None:
    answer = client.request("GET", path)
    assert answer.status == 404 and answer.json == NOT_FOUND


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "POST", "CONNECT"])
def test_wrong_methods_are_unknown_paths(client: RawClient, method: str) -> None:
    answer = client.request(method, "/v1/models")
    assert answer.status == 404 and answer.json == NOT_FOUND


def test_absolute_form_and_query(client: RawClient) -> None:
    assert client.request("GET", "http://example.org/health?x=1&y").status == 200
    assert client.request("GET", "/health?" + "x" * 30_000).status == 200


@pytest.mark.parametrize("path", ["/health", "/nope", "/v1/chat/completions", "/a/b/c?d"])
def test_options_everywhere(client: RawClient, path: str) -> None:
    answer = client.request("OPTIONS", path, b"", "Origin: http://a.b")
    assert answer.status == 200 and answer.body == b""
    assert answer.headers["content-type"] == "text/html"
    assert answer.headers["access-control-allow-origin"] == "http://a.b"
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert answer.headers["access-control-allow-headers"] == "*"


def test_http_1_0(client: RawClient) -> None:
    client.send(b"GET /health HTTP/1.0\r\n\r\n")
    answer = client.answer()
    assert answer is not None and answer.line == "HTTP/1.1 200 OK"
    assert answer.headers["connection"] == "close" and client.is_closed()


def test_client_asks_to_close(client: RawClient) -> None:
    answer = client.request("GET", "/health", b"", "Connection: close")
    assert answer.headers["connection"] == "close" and client.is_closed()


def test_pipelined_requests(client: RawClient) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    body = b'{"content":"a"}'
    two = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    client.send(one + two + one)
    answers = [client.answer() for _ in range(3)]
    assert [answer.status if answer else 0 for answer in answers] == [200, 200, 200]
    assert answers[1] is not None and "tokens" in answers[1].json


# bodies

TOKENIZE = b'{"content":"Hello"}'


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/json"])
def test_body_is_json_whatever_its_type(client: RawClient, content_type: str) -> None:
    headers = [f"Content-Type: {content_type}"] if content_type else []
    answer = client.request("POST", "/tokenize", TOKENIZE, *headers)
    assert answer.json == {"tokens": ids("Hello")}


def test_multipart_fields(port: int) -> None:
    answer = requests.post(f"http://127.0.0.1:{port}/tokenize", files={"content": (None, "Hello")}, timeout=10)
    assert answer.json() == {"tokens": ids("Hello")}


def test_chunked_body(client: RawClient) -> None:
    client.send(b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in (TOKENIZE[:5], TOKENIZE[5:]):
        client.send(b"%x;ext=1\r\n" % len(piece) + piece + b"\r\n")
        time.sleep(0.01)
    client.send(b"0\r\nTrailer: x\r\n\r\n")
    answer = client.answer()
    assert answer is not None and answer.json == {"tokens": ids("Hello")}
    assert client.request("GET", "/health").status == 200


def test_expect_continue(client: RawClient) -> None:
    head = f"POST /tokenize HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {len(TOKENIZE)}\r\n\r\n"
    client.send(head.encode())
    assert read_until(client.socket, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(TOKENIZE)
    answer = client.answer()
    assert answer is not None and answer.json == {"tokens": ids("Hello")}


def test_body_of_100_mib_works_and_more_does_not(client: RawClient, port: int) -> None:
    body = b"[" + b" " * (MAX_BODY_BYTES - 2) + b"]"
    client.socket.settimeout(60)
    assert client.request("POST", "/lora-adapters", body).json == {"success": True}
    with RawClient(port) as other:
        other.send(b"POST /lora-adapters HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
        answer = other.answer()
        assert answer is not None and answer.status == 413
        assert answer.json["error"]["type"] == "invalid_request_error"


# streams


def test_stream_headers_and_keep_alive(client: RawClient) -> None:
    for _ in range(2):
        answer = client.request("POST", "/completion", b'{"prompt":"a","stream":true}')
        assert answer.headers == {
            "server": "llama.cpp",
            "content-type": "text/event-stream",
            "transfer-encoding": "chunked",
            "x-accel-buffering": "no",
            "access-control-allow-origin": "",
            "keep-alive": "timeout=5, max=100",
        }
        assert answer.body.startswith(b"data: {") and answer.body.endswith(b"\n\n")


def test_one_chunk_per_result(port: int) -> None:
    with open_request(port, "/completion", {"prompt": "a", "stream": True}) as connection:
        raw = read_until(connection, b"\r\n0\r\n\r\n")
    pieces = raw.partition(b"\r\n\r\n")[2].split(b"\r\n")
    events = [piece for piece in pieces if piece.startswith(b"data:")]
    assert len(events) >= 2 and all(event.count(b"data:") == 1 for event in events)


def test_headers_of_a_stream_come_before_its_first_token() -> None:
    engine = ScriptedEngine(said("x", pause_after=0))
    body = {"prompt": "a", "stream": True}
    with serving(make_service(engine)) as port, open_request(port, "/completion", body) as sock:
        head = read_until(sock, b"\r\n\r\n")
        assert b"text/event-stream" in head and not engine.finished
        engine.resume.set()
        assert b'"stop":true' in read_until(sock, b"\r\n0\r\n\r\n")


# clients that close one direction, or everything


@pytest.mark.parametrize("stream", [False, True])
def test_half_closed_client_gets_its_answer(stream: bool) -> None:
    engine = ScriptedEngine(said("Hello there", prefill_delay=0.4, delay=0.05))
    with serving(make_service(engine)) as port, RawClient(port) as client:
        body = json.dumps({"prompt": "a", "stream": stream}).encode()
        client.send(b"POST /completion HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.1)
        client.socket.shutdown(socket.SHUT_WR)
        answer = client.answer()
        assert answer is not None and answer.status == 200
        assert b"there" in answer.body
        assert client.is_closed()


def test_half_closed_idle_connection_is_closed(client: RawClient) -> None:
    assert client.request("GET", "/health").status == 200
    client.socket.shutdown(socket.SHUT_WR)
    assert client.is_closed()


def test_slow_reader_neither_blocks_others_nor_loses_data() -> None:
    engine = ScriptedEngine(Script(ids("word ") * 400, batch=16))
    with serving(make_service(engine)) as port:
        body = {"prompt": "a", "stream": True, "n_predict": 400, "timings_per_token": True}
        with open_request(port, "/completion", body) as sock:
            time.sleep(0.5)
            assert requests.get(f"http://127.0.0.1:{port}/health", timeout=1).ok
            raw = read_until(sock, b"\r\n0\r\n\r\n")
        assert raw.count(b"data:") >= 400


# many requests at once


def test_health_answers_while_hundreds_wait() -> None:
    engine = ScriptedEngine(Script([5], repeat=True, delay=0.01), n_slots=1)
    service = make_service(engine)
    with serving(service) as port:
        waiting = [open_request(port, "/completion", {"prompt": "a", "stream": index % 2 == 0}) for index in range(300)]
        try:
            deadline = time.monotonic() + 20
            while len(engine.requests) < 300 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(engine.requests) == 300
            for path in ("/health", "/slots", "/props", "/v1/models", "/lora-adapters"):
                assert requests.get(f"http://127.0.0.1:{port}{path}", timeout=20).ok, path
            assert not engine.finished, "nobody had to wait for one of them"
        finally:
            for connection in waiting:
                connection.close()
        assert engine.wait_idle(20), "all are cancelled when their clients leave"


def test_stop_ends_running_streams() -> None:
    engine = ScriptedEngine(Script([5], repeat=True, delay=0.01))
    with serving(make_service(engine)) as port:
        sock = open_request(port, "/completion", {"prompt": "a", "stream": True})
        read_until(sock, b"data:")
        assert not engine.finished
    read_until(sock, b"\0never")  # up to the end of the connection
    sock.close()
    assert engine.wait_idle(20) and len(engine.finished) == 1
