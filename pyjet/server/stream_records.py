"""The recorded streams of a server, by the conversation that a client names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from pyjet.server.stream_record import StreamRecord

KEEP_SECONDS = 300
MAX_FINISHED = 128


class StreamRecords:
    """A conversation has one stream at most: a new one ends and replaces the one before.

    A finished stream is forgotten after ``KEEP_SECONDS``, the next time that anybody asks for anything; earlier when
    there are more than ``MAX_FINISHED`` of them.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, StreamRecord] = {}

    def start(self, conversation: str) -> StreamRecord:
        record = StreamRecord(conversation)
        with self._lock:
            self._forget_old()
            before = self._records.get(conversation)
            self._records[conversation] = record
        if before is not None:
            before.cancel()
        return record

    def find(self, conversation: str) -> StreamRecord | None:
        with self._lock:
            self._forget_old()
            return self._records.get(conversation)

    def matching(self, conversations: Iterable[str]) -> list[StreamRecord]:
        """Records of these conversations, and of their variants, which are called ``CONVERSATION::NAME``."""
        with self._lock:
            self._forget_old()
            records = list(self._records.values())
        return [
            record
            for name in conversations
            for record in records
            if record.conversation == name or record.conversation.startswith(f"{name}::")
        ]

    def remove(self, conversation: str) -> None:
        """Forget a stream and stop it. Unknown ones are ignored."""
        with self._lock:
            record = self._records.pop(conversation, None)
        if record is not None:
            record.cancel()

    def _forget_old(self) -> None:
        before = self._clock() - KEEP_SECONDS
        finished = [record for record in self._records.values() if record.is_done]
        finished.sort(key=lambda record: record.completed_at)
        n_over = len(finished) - MAX_FINISHED
        for number, record in enumerate(finished):
            if number < n_over or record.completed_at <= before:
                del self._records[record.conversation]
