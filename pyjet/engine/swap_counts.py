"""What moved between the device and the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class SwapCounts:
    """Totals since the start. A move carries any number of pages or one state."""

    pages_out: int = 0
    pages_in: int = 0
    states_out: int = 0
    states_in: int = 0
    moves_out: int = 0
    moves_in: int = 0
    seconds: float = 0.0  # both ways

    @contextmanager
    def moving_out(self, *, pages: int = 0, states: int = 0) -> Iterator[None]:
        self.pages_out += pages
        self.states_out += states
        self.moves_out += 1
        with self._timed():
            yield

    @contextmanager
    def moving_in(self, *, pages: int = 0, states: int = 0) -> Iterator[None]:
        self.pages_in += pages
        self.states_in += states
        self.moves_in += 1
        with self._timed():
            yield

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
