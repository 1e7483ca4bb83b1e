"""A client that sends exactly the bytes it is given and reads what comes back."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from typing import Any

from pyjet.server import jsonio


@dataclass
class Answer:
    """One response. Header names are lower case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    line: str = ""

    @property
    def json(self) -> Any:
        return jsonio.parse(self.body)


class RawClient:
    """One connection."""

    def __init__(self, port: int, timeout: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._data = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send; a server that has closed already is not a failure."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def request(self, method: str, path: str, body: bytes = b"", *headers: str) -> Answer:
        """Send one request and read its answer."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        answer = self.answer(head_only=method == "HEAD")
        assert answer is not None
        return answer

    def answer(self, *, head_only: bool = False) -> Answer | None:
        """The next response; None when the connection ends before one begins."""
        head = self._read_to(b"\r\n\r\n")
        if head is None:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in filter(None, lines):
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        answer = Answer(int(first.split(" ")[1]), headers, line=first)
        if answer.status == 100:
            return self.answer(head_only=head_only)
        if head_only or answer.status in (204, 304):
            return answer
        if "chunked" in headers.get("transfer-encoding", ""):
            answer.body = self._read_chunks()
        else:
            answer.body = self._read_exactly(int(headers.get("content-length", "0")))
        return answer

    def is_closed(self) -> bool:
        """Whether the server has closed the connection and sent nothing more."""
        try:
            return not self._data and self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _receive(self) -> bool:
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            return False
        self._data += data
        return bool(data)

    def _read_to(self, mark: bytes) -> bytes | None:
        while mark not in self._data:
            if not self._receive():
                return None
        head, _, self._data = self._data.partition(mark)
        return head

    def _read_exactly(self, count: int) -> bytes:
        while len(self._data) < count and self._receive():
            pass
        body, self._data = self._data[:count], self._data[count:]
        return body

    def _read_chunks(self) -> bytes:
        body = b""
        while size := int(self._read_to(b"\r\n") or b"0", 16):
            body += self._read_exactly(size)
            self._read_exactly(2)
        self._read_exactly(2)
        return body
