"""One connection: llama-server's response headers, keep-alive rules, and clients that go away.

Waitress does the reading, buffering and writing; this module replaces what it decides differently:

* headers: ``Server: llama.cpp``, no ``Date``, ``Keep-Alive`` on success, ``Connection: close`` from status 400 on;
* a chunked answer (a stream) leaves the connection open for the next request;
* end of input is not a disconnect by itself: proxies close their sending half. A client that is really gone
  answers the next bytes with a reset, so something harmless is sent at once to find out.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from http.client import responses
from typing import Any

from waitress.channel import HTTPChannel
from waitress.task import ErrorTask, Task, WSGITask

from pyjet.server.http_parser import Parser, as_request_error
from pyjet.server.jsonio import CONTENT_TYPE

SERVER_NAME = "llama.cpp"
KEEP_ALIVE = "timeout=5, max=100"

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_COMMENT_CHUNK = b"3\r\n:\n\n\r\n"
_RESET = struct.pack("ii", 1, 0)
"""``SO_LINGER`` of a socket whose ``close`` drops what is unsent and tells the peer so."""

_log = logging.getLogger(__name__)


def _status_line(status: str) -> str:
    """``404 Not Found``: the usual capitals, whatever the application wrote."""
    code = int(status[:3])
    return f"{code} {responses[code]}" if code in responses else status


class _Headers(Task):
    """How a response starts."""

    def __init__(self, channel: Channel, request: Parser) -> None:
        super().__init__(channel, request)
        channel.current = self

    def build_response_header(self) -> bytes:
        """Status line and headers; decides between Content-Length, chunks and no body, and about keep-alive."""
        headers = [(name.title(), value) for name, value in self.response_headers]
        names = {name for name, _ in headers}
        if "Content-Length" not in names and self.has_body:
            if self.content_length is not None:
                headers.append(("Content-Length", str(self.content_length)))
            elif self.request.command != "HEAD":
                headers.append(("Transfer-Encoding", "chunked"))
                self.chunked_response = True
        headers.append(("Server", SERVER_NAME))
        if self._must_close():
            headers = [item for item in headers if item[0] != "Connection"] + [("Connection", "close")]
            self.close_on_finish = True
        else:
            headers.append(("Keep-Alive", KEEP_ALIVE))
        lines = [f"HTTP/1.1 {_status_line(self.status)}", *(f"{name}: {value}" for name, value in headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _must_close(self) -> bool:
        request = self.request
        return bool(
            self.close_on_finish
            or int(self.status[:3]) >= 400
            or request.version != "1.1"
            or request.connection_close
            or self.channel.input_ended
        )


class Response(_Headers, WSGITask):
    """An answer of the application."""

    def write(self, data: bytes) -> None:
        """Send a piece of the body; the first call, also with nothing, sends the headers."""
        if self.request.command == "HEAD":
            data = b""
        # the lock keeps the probe of Channel.probe_client between two pieces
        with self.channel.outbuf_lock:
            super().write(data)


class ErrorResponse(_Headers, ErrorTask):
    """The answer to a request that could not be parsed."""

    def execute(self) -> None:
        error = as_request_error(self.request.error)
        body = error.content()
        self.status = f"{error.code} {error.reason}"
        if body:
            self.response_headers.append(("Content-Type", CONTENT_TYPE))
            self.content_length = len(body)
        self.close_on_finish = True
        self.write(body)

    @property
    def has_body(self) -> bool:
        """A body-less 400 has no Content-Length either."""
        return self.content_length is not None


class Channel(HTTPChannel):
    """One client connection."""

    task_class = Response
    error_task_class = ErrorResponse
    parser_class = Parser

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.input_ended = False
        self.has_served = False
        self.current: _Headers | None = None
        super().__init__(*args, **kwargs)

    @property
    def is_idle(self) -> bool:
        """Between two requests, or before the first."""
        return not self.requests and self.request is None and not self.total_outbufs_len

    def readable(self) -> bool:
        return not self.input_ended and bool(super().readable())

    def handle_read(self) -> None:
        try:
            data = self.socket.recv(self.adj.recv_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.handle_close()
            return
        if data:
            self.last_activity = time.time()
            self.received(data)
        else:
            self._end_of_input()

    def service(self) -> None:
        """Run one request (in a thread of the pool)."""
        try:
            super().service()
        finally:
            self.current = None
            self.has_served = True
        if self.input_ended and not self.requests:
            self.close_when_flushed = True
            self.server.pull_trigger()

    def probe_client(self) -> None:
        """Send bytes that a waiting client ignores and a vanished one answers with a reset."""
        with self.outbuf_lock:
            task = self.current
            if task is None or not task.wrote_header:
                self._send_now(_CONTINUE)
            elif task.chunked_response and self.total_outbufs_len == 0:
                self._send_now(_COMMENT_CHUNK)

    def give_up(self) -> None:
        """Close the connection. Output that its reader does not take is dropped, also what the system holds of it."""
        self.will_close = True
        with self.outbuf_lock:
            if self.total_outbufs_len:
                # Closed as usual, the system would keep megabytes for a reader that may never come, or send them late
                # to one that does: it tries again after ever longer pauses. Nor can a reset pass for the answer's end.
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.handle_close()  # a full socket is never writable, so nothing else would

    def handle_error(self) -> None:
        """An unexpected failure in the I/O loop ends this connection only."""
        _log.exception("connection failed")
        self.handle_close()

    def _end_of_input(self) -> None:
        self.input_ended = True
        self.request = None
        with self.requests_lock:
            busy = bool(self.requests)
        if not busy:
            if self.total_outbufs_len:
                self.close_when_flushed = True
            else:
                self.handle_close()
        elif self.requests[0].version != "1.1":
            self.handle_close()  # such a client does not know interim answers
        else:
            self.probe_client()

    def _send_now(self, data: bytes) -> None:
        self.outbufs[-1].append(data)
        self.current_outbuf_count += len(data)
        self.total_outbufs_len += len(data)
        self._flush_exception(self._flush_some, do_close=False)
