"""The log: llama-server's line format on stderr, optionally a file, or JSON lines on stdout.

A thread of its own writes, so that a pipe that nobody reads never stops a request.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import queue
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from pyjet.server.options import ServerOptions

TRACE = 15
"""Between INFO and DEBUG: ``-lv 4``."""

_LEVELS = {0: logging.CRITICAL + 10, 1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: TRACE}
_LETTERS = {logging.DEBUG: "D", TRACE: "T", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}
_COLOURS = {"D": "\033[33m", "T": "", "I": "\033[32m", "W": "\033[35m", "E": "\033[31m"}
_BLUE, _RESET = "\033[34m", "\033[0m"
_QUEUE_LINES = 20_000
_STARTED = time.time()


class LineFormatter(logging.Formatter):
    """``M.SS.mmm.uuu L srv  function: text``; the time counts from the start of the process."""

    def __init__(self, *, prefix: bool = True, timestamps: bool = True, colours: bool = False) -> None:
        super().__init__()
        self._prefix = prefix
        self._timestamps = timestamps
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        text = f"srv  {(record.funcName or '')[:12]:>12}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return self._head(record) + text

    def _head(self, record: logging.LogRecord) -> str:
        if not self._prefix:
            return ""
        letter = _LETTERS.get(record.levelno, "I")
        stamp = _stamp(record.created) if self._timestamps else ""
        if not self._colours:
            return f"{stamp} {letter} " if stamp else f"{letter} "
        letter = f"{_COLOURS[letter]}{letter}{_RESET}"
        return f"{_BLUE}{stamp}{_RESET} {letter} " if stamp else f"{letter} "


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        level = "warn" if record.levelno == logging.WARNING else record.levelname.lower()
        line = {"type": "log", "time": int(record.created * 1e6), "level": level, "msg": text}
        return json.dumps(line, ensure_ascii=False)


class _DroppingHandler(logging.handlers.QueueHandler):
    """Hands records to the writing thread; when that is stuck, new lines are dropped."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # the writer needs the record as it is; arguments are never changed after the call
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            pass


@contextmanager
def logging_to(options: ServerOptions) -> Iterator[None]:
    """Send the log where the options say until the block ends. Raises OSError for a log file that cannot be opened."""
    root = logging.getLogger("pyjet")
    handlers = [] if options.log_disable else _handlers(options)
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_QUEUE_LINES)
    front = _DroppingHandler(lines)
    listener = logging.handlers.QueueListener(lines, *handlers)
    logging.addLevelName(TRACE, "TRACE")
    logging.raiseExceptions = False
    root.setLevel(_LEVELS.get(max(0, options.verbosity), logging.DEBUG))
    root.propagate = False
    root.addHandler(front)
    # waitress reports clients that went away and full queues; only its real errors matter
    for name in ("waitress", "werkzeug"):
        logging.getLogger(name).setLevel(logging.ERROR)
        logging.getLogger(name).propagate = False
        logging.getLogger(name).addHandler(front)
    listener.start()
    try:
        yield
    finally:
        listener.stop()
        for name in ("pyjet", "waitress", "werkzeug"):
            logging.getLogger(name).removeHandler(front)


def _handlers(options: ServerOptions) -> list[logging.Handler]:
    handlers: list[logging.Handler] = []
    if options.log_jsonl:
        handlers.append(logging.StreamHandler(sys.stdout))
        handlers[0].setFormatter(JsonFormatter())
    else:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[0].setFormatter(_lines(options, _wants_colours(options.log_colors, sys.stderr)))
    if options.log_file:
        file = logging.FileHandler(options.log_file, mode="w", encoding="utf-8")
        file.setFormatter(JsonFormatter() if options.log_jsonl else _lines(options, False))
        handlers.append(file)
    return handlers


def _lines(options: ServerOptions, colours: bool) -> LineFormatter:
    return LineFormatter(prefix=options.log_prefix, timestamps=options.log_timestamps, colours=colours)


def _wants_colours(mode: str, stream: TextIO) -> bool:
    if mode != "auto":
        return mode == "on"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _stamp(created: float) -> str:
    micros = max(0, int((created - _STARTED) * 1e6))
    minutes, rest = divmod(micros, 60_000_000)
    return f"{minutes}.{rest // 1_000_000:02}.{rest // 1000 % 1000:03}.{rest % 1000:03}"
