"""What copies between device and host took lately."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

N_RECENT = 5  # copies whose median counts: another process may spoil two of them


class CopyTimes:
    """Of copies of one size."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=N_RECENT)

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._recent.append(time.perf_counter() - start)

    def fit(self, seconds: float) -> bool:
        """Whether the next one is likely to end within so many seconds; never before one was timed."""
        return bool(self._recent) and median(self._recent) <= seconds
