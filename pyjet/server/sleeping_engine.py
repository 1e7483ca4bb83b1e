"""An engine that is unloaded while nobody needs it, for ``--sleep-idle-seconds``.

Whoever needs the model holds it; when nobody has for so long, the engine is closed, which frees its memory. Limits,
state and counters are still there then. The next one to hold it waits until a new engine is loaded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyjet.engine.client import (
    EngineClient,
    EngineLimits,
    EngineState,
    RequestStream,
    SlotAction,
    SlotActionResult,
    SlotView,
)
from pyjet.engine.counters import Counters
from pyjet.engine.process import add_counters
from pyjet.engine.request import GenerationRequest

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1


class SleepingEngine:
    """An EngineClient around others: ``load`` makes one that is ready, or raises with a reason for people.

    Only hold() wakes it. All other methods are for those who hold it; without that they see an engine that is ready,
    and may only ask for limits, state, error and counters.
    """

    def __init__(self, engine: EngineClient, load: Callable[[], EngineClient], idle_seconds: float) -> None:
        self._engine = engine
        self._load = load
        self._idle_seconds = idle_seconds
        self._lock = threading.RLock()  # held while an engine is loaded or closed
        self._limits = engine.limits
        self._holders = 0
        self._last_use = time.monotonic()
        self._past = Counters()  # of the engines before
        self._asleep = False
        self._closing = threading.Event()
        threading.Thread(target=self._watch, name="sleep", daemon=True).start()

    @property
    def is_sleeping(self) -> bool:
        return self._asleep

    def hold(self) -> None:
        """Keep the engine awake until release(); waits for the model when it must be loaded first.

        Raises what ``load`` raises; nothing is held then.
        """
        with self._lock:
            if self._asleep and not self._closing.is_set():
                _log.info("exiting sleeping state")
                self._engine = self._load()
                self._asleep = False
            self._holders += 1

    def release(self) -> None:
        """End one hold()."""
        with self._lock:
            self._holders -= 1
            self._last_use = time.monotonic()

    # EngineClient

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    @property
    def state(self) -> EngineState:
        return "ready" if self._asleep else self._engine.state

    @property
    def error(self) -> str | None:
        return None if self._asleep else self._engine.error

    @property
    def stall(self) -> str | None:
        return None if self._asleep else self._engine.stall

    def submit(self, request: GenerationRequest) -> RequestStream:
        return self._engine.submit(request)

    def cancel(self, request_id: str, keep_tokens: int | None = None) -> None:
        self._engine.cancel(request_id, keep_tokens)

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        return self._engine.slots(with_tokens=with_tokens)

    def slot_action(self, id_slot: int, action: SlotAction, path: str | None = None) -> SlotActionResult:
        return self._engine.slot_action(id_slot, action, path)

    def counters(self) -> Counters:
        """Totals of all engines so far."""
        if self._asleep:
            return self._past
        return add_counters(self._past, self._engine.counters())

    def close(self) -> None:
        self._closing.set()
        self._engine.close()

    # falling asleep

    def _watch(self) -> None:
        while not self._closing.wait(min(_LOOK_SECONDS, self._idle_seconds)):
            if self._is_idle():
                self._sleep_unless_used()

    def _is_idle(self) -> bool:
        return (not self._asleep and not self._holders
                and time.monotonic() - self._last_use >= self._idle_seconds)  # fmt: skip

    def _sleep_unless_used(self) -> None:
        with self._lock:
            now = self._engine.counters()
            if now.requests_processing or now.requests_deferred:  # nobody waits for them, but they are wanted
                self._last_use = time.monotonic()
            if not self._is_idle() or self._closing.is_set():
                return
            _log.info("entering sleeping state")
            self._past = add_counters(self._past, now)
            self._asleep = True
            self._engine.close()
