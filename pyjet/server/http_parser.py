"""Request parsing with llama-server's limits and answers to garbage, on top of waitress' parser."""

from __future__ import annotations

import re
from typing import Any

from waitress.parser import HTTPRequestParser
from waitress.utilities import Error

from pyjet.server.errors import ApiError
from pyjet.server.jsonio import dump

MAX_URI_BYTES = 32 * 1024
MAX_HEADER_BYTES = 128 * 1024
_MAX_CHUNK_LINE_BYTES = 4 * 1024
_MAX_TRAILER_BYTES = 64 * 1024

_REQUEST_LINE = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH|PRI) ([^ ]+) HTTP/1\.[01]")
_METHOD_START = re.compile(rb"[A-Z]{1,7}(?: |$)")
_LEADING_BLANK = b"\r\n"


class RequestError(Error):
    """A request that never reaches the application; ``message`` None sends no body."""

    def __init__(self, code: int, reason: str, message: str | None = None) -> None:
        super().__init__(message or reason)
        self.code = code
        self.reason = reason
        self.message = message

    def content(self) -> bytes:
        if self.message is None:
            return b""
        return dump(ApiError(self.code, self.message).body())


def bad_request_line() -> RequestError:
    """400 without a body, as the peer answers what is not HTTP."""
    return RequestError(400, "Bad Request")


def as_request_error(error: Any) -> RequestError:
    """Waitress' own findings (bad header, bad chunk, too large) in our form."""
    if isinstance(error, RequestError):
        return error
    return RequestError(error.code, error.reason, f"{error.reason}: {error.body}")


class Parser(HTTPRequestParser):
    """One request. ``error`` is set as soon as it is certain that the request is wrong."""

    def __init__(self, adj: Any) -> None:
        super().__init__(adj)
        self._line_checked = False

    def received(self, data: bytes) -> int:
        """Take bytes; returns how many belong to this request."""
        if self.body_rcv is None and not self._line_checked and not self.completed:
            failure = self._check_line((self.header_plus + data[: MAX_URI_BYTES + 64]).lstrip(_LEADING_BLANK))
            if failure is not None:
                return self._fail(failure, len(data))
        consumed: int = super().received(data)
        if self.chunked and not self.completed:
            self._check_chunk_lines()
        return consumed

    def _check_line(self, head: bytes) -> RequestError | None:
        """Judge the request line as early as possible: whoever sends garbage should not wait for an answer."""
        if not head:
            return None
        end = head.find(b"\r\n")
        if end < 0:
            if len(head) > MAX_URI_BYTES:
                return RequestError(414, "URI Too Long", "the request line is longer than 32 KiB")
            newline_only = b"\n" in head
            return bad_request_line() if newline_only or not _METHOD_START.match(head[:8]) else None
        self._line_checked = True
        match = _REQUEST_LINE.fullmatch(head[:end].rstrip(b" "))
        if match is None:
            return bad_request_line()
        if len(match[1]) > MAX_URI_BYTES:
            return RequestError(414, "URI Too Long", "the request line is longer than 32 KiB")
        return None

    def _check_chunk_lines(self) -> None:
        """Size lines and trailers are short; without a limit they would be collected for ever."""
        receiver = self.body_rcv
        too_long = len(receiver.control_line) > _MAX_CHUNK_LINE_BYTES or len(receiver.trailer) > _MAX_TRAILER_BYTES
        if too_long:
            self.error = RequestError(400, "Bad Request", "a chunk size line or trailer of the body is too long")
            self.completed = True

    def _fail(self, error: RequestError, n_bytes: int) -> int:
        # attributes that the error response and the log read
        self.command, self.path, self.version = "GET", "/", "1.1"
        self.error = error
        self.completed = True
        self.headers_finished = True
        return n_bytes
