"""The engine's process: a thread that loads and computes, the main thread that reads the pipe."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import NoReturn

from pyjet.engine.build import EngineFactory, build_constraints
from pyjet.engine.client import SlotActionResult
from pyjet.engine.core import EngineCore
from pyjet.engine.loop import EngineLoop, Stop
from pyjet.engine.messages import Died, Events, Loading, Pulse, Query, Ready, Reply, SlotDone, ToEngine
from pyjet.engine.outbox import Outbox
from pyjet.engine.request import Event, FailedEvent, FinishedEvent
from pyjet.engine.settings import EngineSettings
from pyjet.engine.stall import PULSE_SECONDS

PROGRESS_INTERVAL = 0.1  # seconds between two Loading messages
STOP_TIMEOUT = 5.0  # seconds a running step gets to end before the process leaves anyway


def engine_main(pipe: Connection, settings: EngineSettings, factory: EngineFactory) -> None:
    """Entry point of the spawned process. Ends when told to, when the engine fails or when the parent is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # these reach the whole group; the parent decides
        signal.signal(number, signal.SIG_IGN)
    EngineChild(pipe, settings, factory).serve()


class EngineChild:
    """Serves one pipe."""

    def __init__(self, pipe: Connection, settings: EngineSettings, factory: EngineFactory) -> None:
        self._pipe = pipe
        self._settings = settings
        self._factory = factory
        self._outbox = Outbox(pipe, self._parent_is_gone)
        self._constraints = build_constraints(settings)
        self._loop: EngineLoop | None = None
        self._stopping = False
        self._last_progress = 0.0
        self._thread = threading.Thread(target=self._compute, name="pyjet-engine", daemon=True)

    def serve(self) -> None:
        self._thread.start()
        try:
            while not self._stopping:
                self._handle(self._pipe.recv())
        except (EOFError, OSError):  # the parent is gone
            self._stopping = True
        if self._loop is not None:
            self._loop.post(Stop())
            self._thread.join(STOP_TIMEOUT)
        self._outbox.close(STOP_TIMEOUT)
        # A step that hangs in a driver, or a half-loaded model, must not keep the process alive.
        os._exit(0)

    def _handle(self, message: ToEngine) -> None:
        if isinstance(message, Query):
            self._answer(message)
        elif isinstance(message, Stop):
            self._stopping = True
        elif self._loop is not None:
            self._loop.post(message)

    def _answer(self, query: Query) -> None:
        if self._loop is not None:
            if query.what == "counters":
                self._outbox.send(Reply(query.number, self._loop.counters()))
            else:
                slots = self._loop.slots(with_tokens=query.what == "slots_with_tokens")
                self._outbox.send(Reply(query.number, slots))

    def _compute(self) -> None:
        try:
            # Beside the weights: later it would hold the GIL for a second, and all agents with it.
            vocabulary = threading.Thread(target=self._constraints.prepare, name="pyjet-grammar", daemon=True)
            vocabulary.start()
            stepper, limits = self._factory(self._settings, self._report)
            core = EngineCore(limits, stepper, constraints=self._constraints)
            loop = EngineLoop(core, stepper, self._send_events, self._answer_slot_job)
            loop.prepare()
            vocabulary.join()
        except BaseException as error:
            self._die(Died(str(error) or type(error).__name__, while_loading=True))
        self._loop = loop
        self._outbox.send(Ready(limits))
        threading.Thread(target=self._beat, args=(loop,), name="pyjet-pulse", daemon=True).start()
        self._loop.run()
        if self._loop.error is not None:
            self._die(Died(self._loop.error, while_loading=False))

    def _beat(self, loop: EngineLoop) -> None:
        """A pulse every second, for the watch in the parent."""
        while not self._stopping:
            self._outbox.send(Pulse(loop.running_step()))
            time.sleep(PULSE_SECONDS)

    def _report(self, stage: str, done: int, total: int) -> bool:
        now = time.monotonic()
        if done >= total or now - self._last_progress >= PROGRESS_INTERVAL:
            self._last_progress = now
            self._outbox.send(Loading(stage, done, total))
        return not self._stopping

    def _send_events(self, events: list[Event]) -> None:
        assert self._loop is not None
        ended = any(isinstance(event, (FinishedEvent, FailedEvent)) for event in events)
        self._outbox.send(Events(events, self._loop.counters() if ended else None))

    def _answer_slot_job(self, number: int, answer: SlotActionResult | str) -> None:
        self._outbox.send(SlotDone(number, answer))

    def _die(self, last_words: Died) -> NoReturn:
        self._outbox.send(last_words)
        self._outbox.close(STOP_TIMEOUT)
        os._exit(1)

    def _parent_is_gone(self) -> None:  # the thread that reads the pipe notices it too
        self._stopping = True
