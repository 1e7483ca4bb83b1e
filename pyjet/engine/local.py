"""The engine on a thread of this process: for tests, `pyjet run` and `pyjet bench`."""

from __future__ import annotations

import threading

from pyjet.engine.build import EngineFactory, build_constraints, build_native
from pyjet.engine.client import (
    EngineLimits,
    EngineState,
    RequestStream,
    SlotAction,
    SlotActionResult,
    SlotView,
)
from pyjet.engine.constraint import Constraints
from pyjet.engine.core import EngineCore, Stepper
from pyjet.engine.counters import Counters
from pyjet.engine.loop import Cancel, EngineLoop, Stop, Submit
from pyjet.engine.request import GenerationRequest
from pyjet.engine.settings import EngineSettings
from pyjet.engine.slot_answers import SlotAnswers
from pyjet.engine.stall import hung_step, patience
from pyjet.engine.streams import StreamTable, failed_stream
from pyjet.native.engine import ProgressCallback


class LocalEngine:
    """An EngineClient around a Stepper, which it owns. ``core``: what decides, if not a plain EngineCore."""

    def __init__(
        self,
        stepper: Stepper,
        limits: EngineLimits,
        constraints: Constraints | None = None,
        core: EngineCore | None = None,
    ) -> None:
        self._limits = limits
        self._streams = StreamTable()
        self._slot_answers = SlotAnswers()
        core = core or EngineCore(limits, stepper, constraints=constraints)
        self._loop = EngineLoop(core, stepper, self._streams.dispatch, self._slot_answers.put)
        self._closing = False
        self._thread = threading.Thread(target=self._loop.run, name="pyjet-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls,
        settings: EngineSettings,
        progress: ProgressCallback | None = None,
        factory: EngineFactory = build_native,
    ) -> LocalEngine:
        """Load the model here and now. Raises ModelError or NativeError."""
        return cls(*factory(settings, progress or (lambda _stage, _done, _total: None)), build_constraints(settings))

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    @property
    def state(self) -> EngineState:
        if self._loop.error is not None:
            return "failed"
        return "stopped" if self._closing else "ready"

    @property
    def error(self) -> str | None:
        return self._loop.error

    @property
    def stall(self) -> str | None:
        limit = patience(self._limits.patience_seconds, self._limits.step_seconds)
        return hung_step(self._loop.running_step(), limit)

    def submit(self, request: GenerationRequest) -> RequestStream:
        stream = self._streams.open(request.id)
        if stream is None:
            return failed_stream(request.id, f"request id {request.id} is in use", "server")
        if not self._loop.post(Submit(request)):
            self._streams.fail(request.id, self._why_unavailable())
        return stream

    def cancel(self, request_id: str, keep_tokens: int | None = None) -> None:
        self._loop.post(Cancel(request_id, keep_tokens))

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        return self._loop.slots(with_tokens=with_tokens)

    def counters(self) -> Counters:
        return self._loop.counters()

    def slot_action(self, id_slot: int, action: SlotAction, path: str | None = None) -> SlotActionResult:
        return self._slot_answers.ask(id_slot, action, path, self._loop.post, self._why_unavailable)

    def _why_unavailable(self) -> str:
        return self.error or "the engine was stopped"

    def close(self) -> None:
        self._closing = True
        self._loop.post(Stop())
        self._thread.join()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
