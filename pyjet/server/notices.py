"""Warnings that concern every request of a kind are logged once."""

from __future__ import annotations

import logging
import threading

_log = logging.getLogger(__name__)


class Notices:
    """Remembers what was said. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def warn(self, text: str) -> None:
        """Log a warning, unless the same was logged before."""
        with self._lock:
            if text in self._said:
                return
            self._said.add(text)
        _log.warning("%s", text)
