"""Progress while the model loads: one line that changes, and only on a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

_WIDTH = 30


class LoadingBar:
    """Called with (stage, done, total) from the engine; writes nothing into pipes and files."""

    def __init__(self, stream: TextIO | None = None, *, enabled: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._enabled = enabled and self._stream.isatty()
        self._shown = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self._enabled or total <= 0:
            return
        filled = min(_WIDTH, _WIDTH * done // total)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        self._write(f"\r{stage:<12.12} {bar} {100 * done // total:3}%")
        self._shown = True

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            self._write("\r\033[K")
            self._shown = False

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._enabled = False
