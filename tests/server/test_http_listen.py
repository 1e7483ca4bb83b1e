"""Where the server listens, and the process around it: several addresses, UNIX sockets, signals, exit codes."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from pyjet.native.library import NativeError, library_path
from pyjet.server.app import create_app
from pyjet.server.http import HttpServer
from pyjet.server.http_sockets import BindError
from pyjet.server.options import ServerOptions


@contextmanager
def listening(**settings: object) -> Iterator[HttpServer]:
    """A server without a model: every API answer is 503, which is enough to see that it listens."""
    options = ServerOptions(**{"port": 0, **settings})  # type: ignore[arg-type]
    server = HttpServer(create_app(None, options), options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answer_on_unix(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(str(path))
        sock.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        return sock.recv(4096)


def test_port_0_takes_a_free_one() -> None:
    with listening() as server:
        assert server.addresses == [f"http://127.0.0.1:{server.port}"]
        assert requests.get(f"{server.addresses[0]}/health", timeout=5).status_code == 503


def test_several_addresses_and_a_unix_socket(tmp_path: Path) -> None:
    path, port = tmp_path / "s.sock", free_port()
    with listening(host=["127.0.0.1", str(path), "127.0.0.2"], port=port) as server:
        assert server.addresses == [f"http://127.0.0.1:{port}", f"unix://{path}", f"http://127.0.0.2:{port}"]
        for url in (server.addresses[0], server.addresses[2]):
            assert requests.get(f"{url}/health", timeout=5).status_code == 503
        assert answer_on_unix(path).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert not path.exists()


def test_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    with listening(host=[str(path)]):
        assert answer_on_unix(path).startswith(b"HTTP/1.1 503")


def test_unix_socket_in_use_or_not_a_socket(tmp_path: Path) -> None:
    path, file = tmp_path / "s.sock", tmp_path / "file.sock"
    file.write_text("precious")
    with listening(host=[str(path)]):
        for taken, reason in ((path, "another server"), (file, "a file of that name")):
            with pytest.raises(BindError, match=reason):
                HttpServer(create_app(None, ServerOptions()), ServerOptions(host=[str(taken)]))
    assert file.read_text() == "precious"


def test_address_in_use() -> None:
    with listening() as server:
        options = ServerOptions(port=server.port)
        with pytest.raises(BindError, match=f"hostname: 127.0.0.1, port: {server.port} .*in use"):
            HttpServer(create_app(None, options), options)


def test_reuse_port() -> None:
    with listening(reuse_port=True) as server, listening(reuse_port=True, port=server.port) as other:
        assert other.port == server.port


@pytest.mark.parametrize("host", ["no.such.host.invalid", "256.1.1.1"])
def test_unknown_host(host: str) -> None:
    with pytest.raises(BindError, match=f"hostname: {host}, port: 8080"):
        HttpServer(create_app(None, ServerOptions()), ServerOptions(host=[host]))


def test_failed_bind_leaves_nothing_open(tmp_path: Path) -> None:
    port = free_port()
    for _ in range(2):
        with pytest.raises(BindError):
            HttpServer(create_app(None, ServerOptions()), ServerOptions(host=["127.0.0.1", "256.1.1.1"], port=port))
    with listening(port=port):
        pass


# the process


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pyjet.server", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_")}
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str], timeout: float = 30) -> tuple[int, str]:
    _, errors = process.communicate(timeout=timeout)
    return process.returncode, errors


def test_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 100)
    code, errors = finish(start("-m", str(path), "--port", "0"))
    assert code == 1 and "broken.gguf" in errors and "exiting due to model loading error" in errors
    assert "Traceback" not in errors
    assert re.match(r"\d+\.\d\d\.\d{3}\.\d{3} [IWE] srv  ", errors)


def test_address_in_use_ends_the_process() -> None:
    with listening() as server:
        code, errors = finish(start("--port", str(server.port)))
    assert code == 1 and "couldn't bind HTTP server socket" in errors


def test_log_disable_prints_nothing() -> None:
    code, errors = finish(start("-m", "/no/such.gguf", "--port", "0", "--log-disable"))
    assert (code, errors) == (1, "")


def test_log_file_and_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "log"
    process = start("-m", "/no/such.gguf", "--port", "0", "--log-jsonl", "--log-file", str(path))
    out, errors = process.communicate(timeout=30)
    assert errors == "" and out.startswith('{"type": "log", "time": ')
    assert "no/such.gguf" in path.read_text()


def has_library() -> bool:
    try:
        return library_path().is_file()
    except NativeError:
        return False


@pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ready_line_then_signal_then_exit_0(number: signal.Signals) -> None:
    process = start("--port", "0", "-c", "512", "-np", "1")
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "listening on http://127.0.0.1:" in line:
            break
    url = lines[-1].split("listening on ")[1].strip()
    with requests.post(f"{url}/completion", json={"prompt": "a", "stream": True}, stream=True, timeout=10) as answer:
        next(answer.iter_lines())
        process.send_signal(number)
        assert process.wait(60) == 0
    process.stderr.close()
    assert any("serving the built-in model" in line for line in lines)


@pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
def test_answers_503_while_loading() -> None:
    port = free_port()
    process = start("--port", str(port), "-c", "512")
    seen = set()
    deadline = time.monotonic() + 30
    while 200 not in seen and time.monotonic() < deadline:
        try:
            seen.add(requests.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code)
        except requests.ConnectionError:
            time.sleep(0.01)
    process.terminate()
    code, errors = finish(process)
    assert code == 0 and seen == {200, 503}, errors
