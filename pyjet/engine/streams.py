"""The streams of all requests in flight: events go to the one that waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from pyjet.engine.client import RequestStream
from pyjet.engine.request import Event, FailedEvent, FailureKind, FinishedEvent


class StreamTable:
    """Request id -> RequestStream. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, RequestStream] = {}

    def open(self, request_id: str) -> RequestStream | None:
        """A new stream; None when the id is in use."""
        with self._lock:
            if request_id in self._streams:
                return None
            return self._streams.setdefault(request_id, RequestStream(request_id))

    def dispatch(self, events: Iterable[Event]) -> None:
        """Append events to their streams; a last event also forgets the stream."""
        for event in events:
            is_last = isinstance(event, (FinishedEvent, FailedEvent))
            with self._lock:
                stream = self._streams.pop(event.id, None) if is_last else self._streams.get(event.id)
            if stream is not None:
                stream.put(event)

    def fail(self, request_id: str, message: str, kind: FailureKind = "unavailable") -> None:
        self.dispatch([FailedEvent(request_id, message, kind)])

    def fail_all(self, message: str, kind: FailureKind = "unavailable") -> int:
        """Close every stream with a FailedEvent; how many there were."""
        with self._lock:
            streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.put(FailedEvent(stream.id, message, kind))
        return len(streams)


def failed_stream(request_id: str, message: str, kind: FailureKind) -> RequestStream:
    """A stream that only says why."""
    stream = RequestStream(request_id)
    stream.put(FailedEvent(request_id, message, kind))
    return stream
