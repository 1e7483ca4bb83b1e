"""HTTPS on real sockets: what works without TLS works with it, and what is not TLS disturbs nobody."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from pyjet.server.http_tls import TlsError, tls_context
from pyjet.server.main import main
from pyjet.server.option_parser import OptionError, parse
from pyjet.server.options import ServerOptions
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import serving
from tests.server.raw_http import RawClient
from tests.server.scripted import events, ids, make_service, said
from tests.server.test_http_listen import listening

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


def make_certificate(folder: Path, name: str, *more: str) -> tuple[str, str]:
    """(certificate, key) for localhost."""
    certificate, key = str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         *(more or ("-nodes",)), "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"), "own")


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(said("</think>\n\nHello there"), n_ctx_slot=1 << 17)


@pytest.fixture(scope="module")
def port(engine: ScriptedEngine, pair: tuple[str, str]) -> Iterator[int]:
    certificate, key = pair
    with serving(make_service(engine, ssl_cert_file=certificate, ssl_key_file=key)) as port:
        yield port


@pytest.fixture
def session(pair: tuple[str, str]) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False  # else a variable may name other authorities
        session.verify = pair[0]
        yield session


def tls_connection(port: int, pair: tuple[str, str]) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=pair[0])
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    return context.wrap_socket(plain, server_hostname="localhost")


def request_bytes(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def test_answers_streams_and_keep_alive(session: requests.Session, port: int) -> None:
    url = f"https://127.0.0.1:{port}"
    for _ in range(3):
        assert session.get(f"{url}/health", timeout=10).json() == {"status": "ok"}
    whole = session.post(url + CHAT, json=HI, timeout=10).json()["choices"][0]["message"]["content"]
    stream = session.post(url + CHAT, json={**HI, "stream": True}, timeout=10).content
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events(stream)[:-1]]
    assert whole == "".join(pieces) == "Hello there"
    assert session.get(f"{url}/nope", timeout=10).status_code == 404


def test_one_connection_carries_many_requests(port: int, pair: tuple[str, str]) -> None:
    with tls_connection(port, pair) as connection:
        for _ in range(3):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while b'{"status":"ok"}' not in answer:
                answer += connection.recv(4096)
        connection.sendall(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        while piece := connection.recv(4096):
            answer += piece
        assert answer.count(b"200 OK") == 2, "the end is told, not torn off"


def test_large_bodies_both_ways(engine: ScriptedEngine, session: requests.Session, port: int) -> None:
    url = f"https://127.0.0.1:{port}"
    text = "some words, " * 60_000
    answer = session.post(f"{url}/tokenize", json={"content": text}, timeout=60).json()
    back = session.post(f"{url}/detokenize", json={"tokens": answer["tokens"]}, timeout=60).json()
    assert back["content"] == text


def test_many_streams_at_once(session: requests.Session, engine: ScriptedEngine, port: int) -> None:
    """Reading and sending at the same time on one connection is what threads must not do to the library."""
    engine.say(Script([*ids("word ") * 300], batch=4, repeat=True))
    body = {"prompt": "a", "stream": True, "n_predict": 600}

    def read(_: int) -> int:
        with requests.Session() as own:
            own.trust_env, own.verify = False, session.verify
            return len(events(own.post(f"https://127.0.0.1:{port}/completion", json=body, timeout=60).content))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(read, range(8)))) == 1
    engine.say(said("</think>\n\nHello there"))


def test_a_slow_reader(engine: ScriptedEngine, port: int, pair: tuple[str, str]) -> None:
    engine.say(Script(ids("word ") * 3000, batch=16, repeat=True))
    with tls_connection(port, pair) as connection:
        connection.sendall(request_bytes("/completion", {"prompt": "a", "stream": True, "n_predict": 3000}))
        data = connection.recv(300)
        time.sleep(0.5)
        while not data.endswith(b"\r\n0\r\n\r\n"):
            piece = connection.recv(1 << 16)
            assert piece
            data += piece
    assert data.count(b"data: ") >= 3000
    engine.say(said("</think>\n\nHello there"))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("how", ["closed", "reset", "torn"])
def test_a_client_that_leaves(pair: tuple[str, str], streamed: bool, how: str) -> None:
    engine = ScriptedEngine(Script([5], repeat=True, delay=0.01))
    with serving(make_service(engine, ssl_cert_file=pair[0], ssl_key_file=pair[1])) as port:
        connection = tls_connection(port, pair)
        connection.sendall(request_bytes("/completion", {"prompt": "a", "stream": streamed}))
        deadline = time.monotonic() + 10
        while not any(slot.is_processing for slot in engine.slots()) and time.monotonic() < deadline:
            time.sleep(0.01)
        if how == "closed":
            connection.settimeout(0.2)
            with contextlib.suppress(OSError, ValueError):
                connection.unwrap()  # the server goes on: nobody has left yet
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        assert engine.wait_idle(3)


def test_what_is_not_tls_is_closed_and_harms_nobody(port: int, session: requests.Session) -> None:
    with RawClient(port) as plain, RawClient(port) as silent, RawClient(port) as torn:
        plain.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        torn.send(b"\x16\x03\x01\x02\x00\x01\x00")
        torn.socket.shutdown(socket.SHUT_WR)
        while plain._receive():
            pass
        assert b"HTTP/" not in plain._data, "nothing is said in the clear"
        silent.send(b"\x16\x03")
        assert session.get(f"https://127.0.0.1:{port}/health", timeout=10).ok


def test_a_unix_socket_has_tls_too(tmp_path: Path, pair: tuple[str, str]) -> None:
    path = tmp_path / "s.sock"
    with listening(host=[str(path), "127.0.0.1"], ssl_cert_file=pair[0], ssl_key_file=pair[1]) as server:
        assert server.addresses == [f"unix://{path}", f"https://127.0.0.1:{server.port}"]
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(10)
        plain.connect(str(path))
        context = ssl.create_default_context(cafile=pair[0])
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 503 ")


# files


def test_files_that_cannot_be_used(tmp_path: Path, pair: tuple[str, str]) -> None:
    other, _ = make_certificate(tmp_path, "other")
    locked, locked_key = make_certificate(tmp_path, "locked", "-passout", "pass:secret")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for certificate, key, reason in (
        (pair[0], "/no/such.key", "--ssl-key-file: failed to open file '/no/such.key': No such file"),
        ("/no/such.pem", pair[1], "--ssl-cert-file: failed to open file '/no/such.pem'"),
        (other, pair[1], "belong together"),
        (str(garbage), pair[1], "must be PEM files"),
        (locked, locked_key, "no password"),
    ):
        with pytest.raises(TlsError) as failure:
            tls_context(ServerOptions(ssl_cert_file=certificate, ssl_key_file=key))
        assert reason in str(failure.value)
    assert tls_context(ServerOptions()) is None


def test_a_bad_file_ends_the_start(capfd: pytest.CaptureFixture[str], pair: tuple[str, str]) -> None:
    assert main(["--port", "0", "--ssl-cert-file", pair[0], "--ssl-key-file", "/no/such.key"]) == 1
    assert "failed to open file '/no/such.key'" in capfd.readouterr().err


@pytest.mark.parametrize(("given", "needed"), [
    ("--ssl-key-file", "--ssl-cert-file"), ("--ssl-cert-file", "--ssl-key-file"),
])  # fmt: skip
def test_one_file_alone_is_an_error(given: str, needed: str) -> None:
    with pytest.raises(OptionError, match=f'"{given}": TLS needs {needed}'):
        parse([given, "x.pem"], {})
    line = parse([given, "x.pem", needed, "y.pem"], {})
    assert {line.options.ssl_cert_file, line.options.ssl_key_file} == {"x.pem", "y.pem"}
