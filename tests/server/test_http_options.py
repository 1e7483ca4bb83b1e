"""Options of the HTTP side, from the command line to real sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from pyjet.server.app import create_app
from pyjet.server.http import HttpServer
from pyjet.server.option_parser import parse
from pyjet.server.service import Service
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, run
from tests.server.raw_http import RawClient
from tests.server.scripted import events, said, tiny_model, tiny_template, tiny_tokenizer

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}
SAYS = "</think>\n\nHello there"


@contextmanager
def served(*arguments: str, engine: ScriptedEngine | None = None, **variables: str) -> Iterator[HttpServer]:
    """A server started with these options and environment variables."""
    options = parse(["--port", "0", *arguments], variables).options
    engine = engine or ScriptedEngine(said(SAYS))
    service = Service(tiny_model(), tiny_tokenizer(), tiny_template(), engine, options, model_id="tiny")
    with run(HttpServer(create_app(service, options), options)) as server:
        yield server


def text_of_stream(answer: requests.Response) -> str:
    assert answer.status_code == 200
    deltas = [event["choices"][0]["delta"] for event in events(answer.content)[:-1] if event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_keys_of_option_variable_and_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# people\nfile-one\n\n  file-two  \n#file-three\n")
    with served("--api-key", "given,other", "--api-key-file", str(file), LLAMA_API_KEY="variable") as server:
        url = server.addresses[0]
        for key in ("given", "other", "file-one", "file-two", "variable"):
            for headers in ({"Authorization": f"Bearer {key}"}, {"X-Api-Key": key}):
                answer = requests.post(url + CHAT, json={**HI, "stream": True}, headers=headers, timeout=10)
                assert text_of_stream(answer) == "Hello there", key
        for key in ("", "#file-three", "file-three", "# people", "given,other", "Given"):
            answer = requests.post(url + CHAT, json=HI, headers={"X-Api-Key": key}, timeout=10)
            assert answer.status_code == 401 and answer.json()["error"]["message"] == "Invalid API Key"
        assert requests.get(f"{url}/health", timeout=10).ok


def test_a_prefix_moves_every_route() -> None:
    with served("--api-prefix", "/team/model/", "--api-key", "k", "--metrics") as server:
        url, key = server.addresses[0], {"Authorization": "Bearer k"}
        moved = f"{url}/team/model"
        assert text_of_stream(requests.post(moved + CHAT, json={**HI, "stream": True}, headers=key, timeout=10)) == (
            "Hello there")  # fmt: skip
        for path in ("/v1/models", "/metrics", "/slots", "/props"):
            assert requests.get(moved + path, headers=key, timeout=10).ok, path
            assert requests.get(url + path, headers=key, timeout=10).status_code == 404, path
        assert requests.get(f"{moved}/health", timeout=10).ok, "load balancers have no key"
        assert "<!doctype html>" in requests.get(f"{moved}/", timeout=10).text.lower()
        assert requests.get(f"{url}/", headers=key, timeout=10).status_code == 404


def test_two_servers_share_a_port() -> None:
    """Whoever of them stops, new connections find the other."""
    first = ScriptedEngine(said(SAYS))
    second = ScriptedEngine(said(SAYS))
    with served("--reuse-port", engine=first) as one:
        with served("--reuse-port", "--port", str(one.port), engine=second) as other:
            assert other.port == one.port
            url = one.addresses[0]
            for _ in range(40):  # a new connection each time
                assert requests.get(f"{url}/health", headers={"Connection": "close"}, timeout=10).ok
        answer = requests.post(url + CHAT, json=HI, timeout=10)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello there"
    assert len(first.requests) == 1


def test_without_the_option_a_port_is_not_shared() -> None:
    from pyjet.server.http_sockets import BindError

    with served() as one, pytest.raises(BindError, match="in use"), served("--port", str(one.port)):
        pass


@pytest.mark.parametrize(("arguments", "pings"), [
    (("--sse-ping-interval", "1"), True), (("--sse-ping-interval", "-1"), False), ((), False),
])  # fmt: skip
def test_the_interval_of_pings(arguments: tuple[str, ...], pings: bool) -> None:
    engine = ScriptedEngine(said(SAYS, prefill_delay=1.5))
    with served(*arguments, engine=engine) as server:
        answer = requests.post(server.addresses[0] + CHAT, json={**HI, "stream": True}, timeout=10)
        found = events(answer.content)
        assert (":" in found) == pings and found[-1] == "[DONE]"
        # a request may ask for its own
        own = {**HI, "stream": True, "sse_ping_interval": -1 if pings else 1}
        answer = requests.post(server.addresses[0] + CHAT, json=own, timeout=10)
        assert (":" in events(answer.content)) != pings


def test_one_thread_is_no_limit() -> None:
    engine = ScriptedEngine(Script([5], repeat=True, delay=0.01))
    with served("--threads-http", "1", engine=engine) as server:
        waiting = [open_request(server.port, "/completion", {"prompt": "a", "stream": True}) for _ in range(6)]
        for connection in waiting:
            assert b"200 OK" in read_until(connection, b"\r\n\r\n")
        assert requests.get(f"{server.addresses[0]}/health", timeout=5).ok
        for connection in waiting:
            connection.close()
        assert engine.wait_idle(5)


def test_a_connection_is_kept_for_as_many_requests_as_a_client_has() -> None:
    with served() as server, RawClient(server.port) as client:
        for number in range(150):
            body = json.dumps({**HI, "stream": number % 2 == 0}).encode()
            answer = client.request("POST", CHAT, body) if number % 10 == 0 else client.request("GET", "/health")
            assert answer.status == 200 and answer.headers["keep-alive"] == "timeout=5, max=100"


def test_unix_socket_alone(tmp_path: Path) -> None:
    """Streams work there, a stale file does not hinder, and the file goes with the server."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with served("--host", str(path)) as server:
        assert server.addresses == [f"unix://{path}"]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(path))
            body = json.dumps({**HI, "stream": True}).encode()
            connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
            assert b"data: [DONE]" in read_until(connection, b"\r\n0\r\n\r\n")
    assert not path.exists()
