"""How often and how soon a dead engine is started again."""

from __future__ import annotations

import time
from collections import deque

from pyjet.engine.sequence import Clock


class RestartPolicy:
    """At most ``limit`` restarts within ``window`` seconds, each waiting twice as long as the one before."""

    def __init__(
        self, limit: int = 5, window: float = 60.0, delay: float = 0.25, clock: Clock = time.monotonic
    ) -> None:
        self.limit = limit
        self.window = window
        self._delay = delay
        self._clock = clock
        self._recent: deque[float] = deque()

    def next_delay(self) -> float | None:
        """Seconds to wait before the next start; None: give up."""
        now = self._clock()
        while self._recent and now - self._recent[0] > self.window:
            self._recent.popleft()
        if len(self._recent) >= self.limit:
            return None
        self._recent.append(now)
        return self._delay * 2.0 ** (len(self._recent) - 1)
