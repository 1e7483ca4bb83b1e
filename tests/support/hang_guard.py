"""Ends what hangs. Far above what any machine needs: it tells a hang, not a speed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 60.0


class HangError(AssertionError):
    """The block was still running."""


@contextmanager
def hang_guard(seconds: float = SECONDS) -> Iterator[None]:
    """Raise HangError in a block that runs longer, as soon as it runs Python code. On the main thread only."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise HangError(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
