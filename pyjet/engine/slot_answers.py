"""Who waits for a slot job: each caller its own answer, from whatever thread it comes."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable

from pyjet.engine.client import SlotAction, SlotActionError, SlotActionResult
from pyjet.engine.slot_jobs import SlotJob


class SlotAnswers:
    """Any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[SlotActionResult | str]] = {}

    def ask(
        self,
        id_slot: int,
        action: SlotAction,
        path: str | None,
        post: Callable[[SlotJob], bool],
        why_not: Callable[[], str],
    ) -> SlotActionResult:
        """Hand a job over and wait for its answer. Raises SlotActionError, also when ``post`` could not be done."""
        number = next(self._numbers)
        with self._lock:
            self._waiting[number] = queue.SimpleQueue()
        if not post(SlotJob(number, id_slot, action, path)):
            self.put(number, why_not())
        return self._wait(number)

    def put(self, number: int, answer: SlotActionResult | str) -> None:
        """An answer, or a sentence that says why there is none. Later ones for the same job are ignored."""
        with self._lock:
            waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.put(answer)

    def _wait(self, number: int) -> SlotActionResult:
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
