"""Notices an engine that hangs: a step that never ends, or a process that says nothing any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyjet.native.step import StepBatch

Clock = Callable[[], float]  # seconds, monotonic
PULSE_SECONDS = 1.0  # how often the engine's process says that it lives
LOST_PULSES = 5  # fewer may be late on a busy machine
SLOW_STEPS = 20.0  # a step may take so many times as long as the slowest one measured at load


@dataclass(frozen=True)
class RunningStep:
    """The step that computes now: its number since the start, its size, and how long it has been running."""

    number: int
    n_rows: int
    n_sequences: int
    seconds: float

    def __str__(self) -> str:
        what = f"{self.n_rows} rows of {self.n_sequences} requests" if self.n_rows else "being planned"
        return f"step {self.number} ({what})"


class StepClock:
    """Written by the thread that computes, read by others."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._n_steps = 0
        self._now: tuple[int, int, int, float] | None = None  # replaced as a whole

    def begin(self) -> None:
        """A step is being planned."""
        self._now = (self._n_steps, 0, 0, self._clock())
        self._n_steps += 1

    def compute(self, batch: StepBatch) -> None:
        """It has rows now."""
        if self._now is not None:
            self._now = (self._now[0], len(batch.tokens), len(batch.seqs), self._now[3])

    def end(self) -> None:
        self._now = None

    def running(self) -> RunningStep | None:
        """The step that is planned or computed now; None between two steps."""
        if (now := self._now) is None:
            return None
        return RunningStep(now[0], now[1], now[2], self._clock() - now[3])


def patience(wanted_s: float, step_seconds: tuple[tuple[int, float], ...]) -> float:
    """Seconds after which a step counts as hung: what the user wants, or more where steps are known to be slow."""
    slowest = max((seconds for _, seconds in step_seconds), default=0.0)
    return max(wanted_s, SLOW_STEPS * slowest)


def hung_step(step: RunningStep | None, patience_s: float, more_s: float = 0.0) -> str | None:
    """A sentence about a step that has taken too long, ``more_s`` seconds after it was looked at; None: all is well."""
    if step is None or step.seconds + more_s <= patience_s:
        return None
    seconds = step.seconds + more_s
    return f"{step} has been running for {seconds:.0f} s, more than the {patience_s:.0f} s that one may take"


class PulseWatch:
    """Judges an engine in another process by its pulses. One thread notes them, any thread asks."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, RunningStep | None] | None = None

    def start(self) -> None:
        """The engine is ready; from now on pulses are expected."""
        self._last = (self._clock(), None)

    def stop(self) -> None:
        """No pulses are expected: it loads, or it ended."""
        self._last = None

    def note(self, step: RunningStep | None) -> None:
        """A pulse came, with the step that computes."""
        if self._last is not None:
            self._last = (self._clock(), step)

    def verdict(self, patience_s: float) -> str | None:
        """What is wrong, for people; None: nothing."""
        if (last := self._last) is None:
            return None
        silence = self._clock() - last[0]
        if hung := hung_step(last[1], patience_s, silence):
            return hung
        if silence > max(patience_s, LOST_PULSES * PULSE_SECONDS):
            return f"its process has said nothing for {silence:.0f} s"
        return None
