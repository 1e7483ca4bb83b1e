"""Server-sent events: frames, pings, and the stream of one request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from flask import Response

from pyjet.server import jsonio
from pyjet.server.errors import ApiError, server_error
from pyjet.server.generation import Item, Job

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

PING = b":\n\n"
DONE = b"data: [DONE]\n\n"
FIRST_EVENT_SECONDS = 0.2
"""So long a stream's status line waits for a failure that is better told as an HTTP error."""

logger = logging.getLogger(__name__)


class StreamFormat(Protocol):
    """How one API shows a generation as events."""

    end: bytes
    """What follows the last event of a stream that did not fail."""

    def frames(self, item: Item) -> list[dict[str, Any]]:
        """The events of one item, often none."""
        ...

    def encode(self, event: dict[str, Any]) -> bytes:
        """One event as it goes over the wire."""
        ...

    def encode_error(self, error: ApiError) -> bytes:
        """The event that ends a stream that failed."""
        ...


class DataEvents:
    """Events without a name, as OpenAI's completions have them; also what an error looks like there."""

    def encode(self, event: dict[str, Any]) -> bytes:
        return frame(event)

    def encode_error(self, error: ApiError) -> bytes:
        return frame(error.body())


class TypedEvents(DataEvents):
    """Events that are named after their ``type``."""

    def encode(self, event: dict[str, Any]) -> bytes:
        return frame(event, event["type"])


def frame(payload: Any, name: str | None = None) -> bytes:
    """One event with a JSON payload, and perhaps a name."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return head + b"data: " + jsonio.dump(payload) + b"\n\n"


class StreamResponse(Response):
    """A ``text/event-stream`` whose headers leave before the first event exists."""

    def __init__(self, frames: Iterable[bytes]) -> None:
        super().__init__(frames, 200)
        self.headers["Content-Type"] = "text/event-stream"  # without a charset: that is how clients recognise it
        self.headers["X-Accel-Buffering"] = "no"

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        app_iter, status, headers = self.get_wsgi_response(environ)
        write = start_response(status, headers)
        try:
            write(b"")  # the server sends the headers now; without this they wait for the first event
        except BaseException:
            self.close()  # the client left already: nobody will iterate, so nobody else would cancel the work
            raise
        return app_iter


def start_stream(job: Job, form: StreamFormat, client_gone: Callable[[], bool], ping_seconds: int) -> StreamResponse:
    """Begin a generation and answer with its events. ApiError as for :func:`open_frames`."""
    return StreamResponse(open_frames(job, form, client_gone, ping_seconds))


def open_frames(job: Job, form: StreamFormat, client_gone: Callable[[], bool], ping_seconds: int) -> Frames:
    """Begin a generation; the bytes of its events follow.

    An error that comes before the first event is raised as ApiError; later ones become an event, and the stream
    ends there. Queued requests get their headers (and pings) while they wait.
    """
    items = job.items()
    first: list[Item | None] = []
    deadline = time.monotonic() + FIRST_EVENT_SECONDS
    try:
        for item in items:
            first.append(item)
            if item is not None or time.monotonic() > deadline:
                break
    except BaseException:
        job.cancel()
        raise
    return Frames(job, _stream(job, chain(first, items), form, client_gone, ping_seconds))


class Frames:
    """Iterator over a stream's bytes that cancels the job also when it is closed before its first step."""

    def __init__(self, job: Job, frames: Iterator[bytes]) -> None:
        self._job = job
        self._frames = frames

    def __iter__(self) -> Iterator[bytes]:
        return self._frames

    def __next__(self) -> bytes:
        return next(self._frames)

    def close(self) -> None:
        close = getattr(self._frames, "close", None)
        if close is not None:
            close()
        self._job.cancel()


def _stream(
    job: Job, items: Iterable[Item | None], form: StreamFormat, client_gone: Callable[[], bool], ping_seconds: int
) -> Iterator[bytes]:
    """One piece of bytes per item that has events; pings by the wall clock while nothing is sent."""
    last_sent = time.monotonic()
    try:
        for item in items:
            if client_gone():
                return
            data = b"".join(map(form.encode, form.frames(item))) if item is not None else b""
            if not data and ping_seconds > 0 and time.monotonic() - last_sent >= ping_seconds:
                data = PING
            if data:
                yield data
                last_sent = time.monotonic()
        if form.end:
            yield form.end
    except ApiError as error:
        yield form.encode_error(error)
    except Exception:
        logger.exception("a stream failed")
        yield form.encode_error(server_error("internal error"))
    finally:
        job.cancel()
