"""A real HTTP server in a thread, for tests that need sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyjet.server.app import create_app
from pyjet.server.http import HttpServer
from pyjet.server.options import ServerOptions
from pyjet.server.service import Service


@contextmanager
def serving(service: Service) -> Iterator[int]:
    """Serve until the block ends; the value is the port."""
    with running(service.options) as server:
        server.app = create_app(service, service.options)
        yield server.port


@contextmanager
def running(options: ServerOptions) -> Iterator[HttpServer]:
    """A server that says that its model is loading, until it gets another application."""
    options.host, options.port = ["127.0.0.1"], 0
    with run(HttpServer(create_app(None, options), options)) as server:
        yield server


@contextmanager
def run(server: HttpServer) -> Iterator[HttpServer]:
    """The server, on a thread of its own until the block ends."""
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(10)


def open_request(
    port: int, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> socket.socket:
    """A connection with a POST request sent and nothing read."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    lines = {"Host": "x", "Content-Type": "application/json", "Content-Length": len(data), **(headers or {})}
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    connection.sendall(head.encode() + data)
    return connection


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """Bytes up to and including ``mark``, or all there are when the connection ends first."""
    data = b""
    while mark not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data
