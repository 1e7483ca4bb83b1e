"""Chats that are being answered, by the id that their answers show."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyjet.server.generation import Job


class ActiveChats:
    """Every HTTP thread may use it. A chat leaves by itself when nobody works on its answer any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: weakref.WeakValueDictionary[str, Job] = weakref.WeakValueDictionary()

    def add(self, chat_id: str, job: Job) -> None:
        with self._lock:
            self._jobs[chat_id] = job

    def find(self, chat_id: str) -> Job | None:
        """The job of a chat that is not over."""
        with self._lock:
            job = self._jobs.get(chat_id)
        return job if job is not None and job.is_running else None
