"""Who waits for a slot job: each caller its own answer, from whatever thread it comes."""

from __future__ import annotations

import itertools
import queue
import threading

from pyjet.engine.client import SlotActionError, SlotActionResult


class SlotAnswers:
    """Any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[SlotActionResult | str]] = {}

    def expect(self) -> int:
        """The number of a job that will be answered."""
        number = next(self._numbers)
        with self._lock:
            self._waiting[number] = queue.SimpleQueue()
        return number

    def put(self, number: int, answer: SlotActionResult | str) -> None:
        """An answer, or a sentence that says why there is none. Later ones for the same job are ignored."""
        with self._lock:
            waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.put(answer)

    def wait(self, number: int) -> SlotActionResult:
        """Raises SlotActionError."""
        answer = self._waiting[number].get()
        with self._lock:
            del self._waiting[number]
        if isinstance(answer, str):
            raise SlotActionError(answer)
        return answer

    def fail_all(self, message: str) -> None:
        with self._lock:
            waiting = list(self._waiting.values())
        for one in waiting:
            one.put(message)
