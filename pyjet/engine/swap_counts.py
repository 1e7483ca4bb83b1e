"""How often pages and states moved between the device and the host, and how long that took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class SwapCounts:
    """Totals since the start. A move carries any number of pages or one state."""

    moves_out: int = 0
    moves_in: int = 0
    seconds: float = 0.0  # both ways

    @contextmanager
    def moving_out(self) -> Iterator[None]:
        with self._timed():
            yield
        self.moves_out += 1

    @contextmanager
    def moving_in(self) -> Iterator[None]:
        with self._timed():
            yield
        self.moves_in += 1

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
