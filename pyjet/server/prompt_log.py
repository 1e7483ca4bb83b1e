"""``--log-prompts-dir``: one file per request with its final prompt, for debugging templates and agents."""

from __future__ import annotations

import itertools
import logging
import time
from pathlib import Path

_log = logging.getLogger(__name__)


class PromptLog:
    """Writes prompts to files that are named after the time, in milliseconds. Any thread may call it.

    The directory is made when it is missing. A file that cannot be written is a warning: prompts are answered anyway.
    """

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _log.warning("prompts are not logged: failed to create directory '%s': %s", directory, error.strerror)

    def write(self, prompt: str) -> None:
        """Keep one prompt; special tokens are text in it."""
        try:
            for milliseconds in itertools.count(int(time.time() * 1000)):
                try:
                    with open(self._directory / f"{milliseconds:012d}.txt", "x", encoding="utf-8") as file:
                        file.write(prompt)
                    return
                except FileExistsError:
                    continue
        except OSError as error:
            _log.warning("a prompt was not logged: %s", error)
