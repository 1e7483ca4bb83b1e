"""Events of several engine requests in the order of their arrival."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjet.engine.client import RequestStream
    from pyjet.engine.request import Event


class MergedStreams:
    """One reader. ``single``: only the stream added last is read, directly; otherwise a thread passes each one on."""

    def __init__(self, *, single: bool) -> None:
        self._single = single
        self._stream: RequestStream | None = None
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def add(self, stream: RequestStream) -> None:
        if self._single:
            self._stream = stream
        else:
            threading.Thread(target=self._pump, args=(stream,), name="merge-events", daemon=True).start()

    def get(self, timeout: float) -> Event | None:
        """The next event; None when there was none for ``timeout`` seconds."""
        if self._stream is not None:
            return self._stream.get(timeout)
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _pump(self, stream: RequestStream) -> None:
        for event in stream:
            self._events.put(event)
