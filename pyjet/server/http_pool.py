"""Threads for requests: a fixed base, and more on demand, so that waiting requests never block ``/health``."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Protocol

EXTRA_THREADS = 1024
"""Threads beyond the base that may start when all are busy."""

_IDLE_SECONDS = 30.0

_log = logging.getLogger(__name__)


class ChannelTask(Protocol):
    """What waitress queues: a connection with a complete request."""

    def service(self) -> None: ...

    def cancel(self) -> None: ...


class TaskPool:
    """Runs tasks in order of arrival, each in a thread. Waitress calls ``add_task`` and ``shutdown``."""

    def __init__(self, base_threads: int, extra_threads: int = EXTRA_THREADS) -> None:
        self._base = base_threads
        self._limit = base_threads + extra_threads
        self._changed = threading.Condition()
        self._queue: deque[ChannelTask] = deque()
        self._n_threads = 0
        self._n_idle = 0
        self._stopping = False

    @property
    def n_running(self) -> int:
        """Tasks queued or running."""
        with self._changed:
            return len(self._queue) + self._n_threads - self._n_idle

    def add_task(self, task: ChannelTask) -> None:
        with self._changed:
            self._queue.append(task)
            if len(self._queue) > self._n_idle and self._n_threads < self._limit:
                self._n_threads += 1
                threading.Thread(target=self._run, name=f"http-{self._n_threads}", daemon=True).start()
            self._changed.notify()

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5.0) -> bool:
        """Stop idle threads and drop queued tasks; running ones end by themselves."""
        with self._changed:
            self._stopping = True
            dropped = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for task in dropped:
            task.cancel()
        return bool(dropped)

    def _run(self) -> None:
        while (task := self._next_task()) is not None:
            try:
                task.service()
            except Exception:
                _log.exception("a request failed outside of the application")

    def _next_task(self) -> ChannelTask | None:
        """Wait for a task; None ends the thread, which is then no longer counted."""
        with self._changed:
            self._n_idle += 1
            while not self._queue and not self._stopping:
                woken = self._changed.wait(_IDLE_SECONDS)
                if not woken and self._n_threads > self._base:
                    break
            self._n_idle -= 1
            if self._queue:
                return self._queue.popleft()
            self._n_threads -= 1
            return None
