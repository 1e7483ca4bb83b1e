"""What a stream sent, kept so that a client that lost its connection can read it from where it was.

A recorded stream runs to its end although nobody reads it. The record keeps the last bytes only: whoever comes later
than these finds that the place is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

MAX_BYTES = 4 * 1024 * 1024
_WAKE_SECONDS = 0.2


class PlaceLost(Exception):
    """The bytes from this place on are no longer kept."""


class StreamRecord:
    """One stream. A single thread appends, any number of threads read."""

    def __init__(self, conversation: str, max_bytes: int = MAX_BYTES) -> None:
        self.conversation = conversation
        self.started_at = int(time.time())
        self.completed_at = 0  # Unix seconds; 0 while it goes on
        self.is_cancelled = False
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._bytes = bytearray()
        self._n_dropped = 0
        self._waited_for: int | None = None  # where the client is that the stream was made for

    @property
    def is_done(self) -> bool:
        return self.completed_at > 0

    @property
    def n_bytes(self) -> int:
        """All bytes that were ever sent."""
        with self._changed:
            return self._n_dropped + len(self._bytes)

    def has(self, position: int) -> bool:
        """Whether the bytes from ``position`` on are still kept."""
        return position >= self._n_dropped

    def append(self, data: bytes) -> None:
        """Add bytes; waits for the first client if that is far behind."""
        with self._changed:
            while self._is_far_ahead() and not self.is_cancelled:
                self._changed.wait(_WAKE_SECONDS)
            self._bytes += data
            n_over = max(0, len(self._bytes) - self._max_bytes)
            del self._bytes[:n_over]
            self._n_dropped += n_over
            self._changed.notify_all()

    def finish(self) -> None:
        """Nothing follows. Idempotent."""
        with self._changed:
            self.completed_at = self.completed_at or int(time.time())
            self._changed.notify_all()

    def cancel(self) -> None:
        """Nobody wants it any more: whoever makes or reads the stream stops."""
        self.is_cancelled = True
        self.finish()

    def read(self, position: int, client_gone: Callable[[], bool]) -> Iterator[bytes]:
        """Bytes from ``position`` on as they come, until the stream ends or the client leaves. Raises PlaceLost."""
        while (data := self._next(position, client_gone)) is not None:
            position += len(data)
            yield data

    def read_first(self, client_gone: Callable[[], bool]) -> Iterator[bytes]:
        """For the client that asked for the stream, which must get all of it: the stream waits for it."""
        self._waited_for = 0
        try:
            for data in self.read(0, client_gone):
                yield data
                self._waited_for += len(data)
        finally:
            with self._changed:
                self._waited_for = None
                self._changed.notify_all()

    def _is_far_ahead(self) -> bool:
        reader = self._waited_for
        return reader is not None and self._n_dropped + len(self._bytes) - reader > self._max_bytes // 2

    def _next(self, position: int, client_gone: Callable[[], bool]) -> bytes | None:
        with self._changed:
            while True:
                if client_gone() or self.is_cancelled:
                    return None
                if not self.has(position):
                    raise PlaceLost
                if data := bytes(self._bytes[position - self._n_dropped :]):
                    return data
                if self.is_done:
                    return None
                self._changed.wait(_WAKE_SECONDS)
