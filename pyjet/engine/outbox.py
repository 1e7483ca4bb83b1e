"""What the engine's process has to say, sent by a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from pyjet.engine.messages import FromEngine


class Outbox:
    """Sends messages in the order of ``send``, which any thread may call and which never waits.

    Pickling and writing take longer than planning a step. This thread does them while a step computes: it gets the
    GIL when the engine's thread enters the native call. ``on_broken`` is called once the other end is gone.
    """

    def __init__(self, pipe: Connection, on_broken: Callable[[], None]) -> None:
        self._pipe = pipe
        self._on_broken = on_broken
        self._messages: queue.SimpleQueue[FromEngine | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pyjet-outbox", daemon=True)
        self._thread.start()

    def send(self, message: FromEngine) -> None:
        self._messages.put(message)

    def close(self, timeout: float) -> None:
        """Wait until everything is sent; what comes later is not."""
        self._messages.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while (message := self._messages.get()) is not None:
                self._pipe.send(message)
        except (OSError, ValueError):
            self._on_broken()
