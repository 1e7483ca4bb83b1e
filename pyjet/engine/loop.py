"""The one engine thread: takes commands between steps, computes, hands out events."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyjet.engine.client import SlotView
from pyjet.engine.constraint_jobs import Compiled, ConstraintJobs
from pyjet.engine.core import EngineCore, Stepper
from pyjet.engine.counters import Counters
from pyjet.engine.request import Event, FailedEvent, FinishedEvent, GenerationRequest, Timings
from pyjet.engine.slot_jobs import SlotAnswer, SlotJob, SlotJobs
from pyjet.engine.stall import RunningStep, StepClock

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submit:
    request: GenerationRequest


@dataclass(frozen=True)
class Cancel:
    request_id: str
    keep_tokens: int | None = None


@dataclass(frozen=True)
class Stop:
    pass


Command = Submit | Cancel | SlotJob | Stop | Compiled


class EngineLoop:
    """Runs an EngineCore on a Stepper until stopped or until a step fails.

    ``sink`` gets the events of each step in one list, on the engine's thread. ``answer`` gets the results of slot
    jobs, on any thread. ``error`` says why it failed. The core is locked except while a step computes, so ``slots``
    and ``counters`` never wait for a long prompt.
    """

    def __init__(
        self, core: EngineCore, stepper: Stepper, sink: Callable[[list[Event]], None], answer: SlotAnswer
    ) -> None:
        self.error: str | None = None
        self._core = core
        self._stepper = stepper
        self._sink = sink
        self._lock = threading.Lock()
        self._door = threading.Lock()  # guards _closed: no command is lost between the last look and the end
        self._closed = False
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._slot_jobs = SlotJobs(core.slot_contents, core.slot_file_owner, answer, self._post_again)
        self._constraint_jobs = ConstraintJobs(core.constraints, self.post)
        self._answer = answer
        self._started: list[Event] = []  # that nobody was told yet
        self._step_clock = StepClock()

    def post(self, command: Command) -> bool:
        """Hand over a command; False when the loop has ended."""
        with self._door:
            if not self._closed:
                self._commands.put(command)
            return not self._closed

    def _post_again(self, job: SlotJob) -> None:
        if not self.post(job):
            self._answer(job.number, "the engine was stopped")

    def running_step(self) -> RunningStep | None:
        """The step that computes now. Never waits."""
        return self._step_clock.running()

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        with self._lock:
            return self._core.slots(with_tokens=with_tokens)

    def counters(self) -> Counters:
        with self._lock:
            return self._core.counters()

    def prepare(self) -> None:
        """Before ``run``: do what would take time later."""
        while self._core.prepare():
            pass

    def run(self) -> None:
        """Until Stop or a failure; every request still in flight then gets a FailedEvent. Frees the stepper."""
        message = "the engine was stopped"
        try:
            while self._take_commands():
                self._step()
        except Exception as error:
            log.exception("the engine failed")
            message = self.error = f"the engine failed: {error}"
        with self._door:
            self._closed = True
        self._fail_everything(message)
        self._stepper.close()

    def _take_commands(self) -> bool:
        """Apply what has arrived, waiting only when there is nothing to compute. False: stop."""
        while not self._core.has_work or not self._commands.empty():
            self._hand_out()
            self._prepare()
            command = self._commands.get()
            if isinstance(command, Stop):
                return False
            with self._lock:
                events = self._apply(command)
            if events:
                self._sink(events)
        return True

    def _apply(self, command: Submit | Cancel | SlotJob | Compiled) -> list[Event]:
        if isinstance(command, SlotJob):
            self._slot_jobs.add(command)
            return []
        if isinstance(command, Compiled):
            return self._submit_compiled(command)
        if isinstance(command, Cancel):
            if self._constraint_jobs.waiting.pop(command.request_id, None) is not None:
                return [FinishedEvent(command.request_id, "cancelled", -1, Timings())]
            events = self._core.cancel(command.request_id, command.keep_tokens)
            self._slot_jobs.run()
            return events
        if command.request.grammar is None:
            return self._core.submit(command.request)
        self._constraint_jobs.add(command.request)
        return []

    def _submit_compiled(self, compiled: Compiled) -> list[Event]:
        if not self._constraint_jobs.is_awaited(compiled):
            return []
        if isinstance(compiled.constraint, str):
            return [FailedEvent(compiled.request.id, compiled.constraint, "server")]
        waited = time.perf_counter() - compiled.t_begin
        return self._core.submit(compiled.request, compiled.constraint, waited)

    def _prepare(self) -> None:
        """Use the time until the next command, in portions that it need not wait for."""
        while self._commands.empty() and self._core.prepare():
            pass

    def _step(self) -> None:
        self._step_clock.begin()
        if self._core.may_copy:
            self._hand_out()
        with self._lock:
            self._started, batch = self._core.begin()
        if batch is None:
            self._hand_out()
        else:
            self._step_clock.compute(batch)
            result = self._stepper.step(batch, self._beside_step)
            with self._lock:
                self._core.take(result)
                self._slot_jobs.run()
        self._step_clock.end()

    def _beside_step(self) -> None:
        """While a step computes. Tokens come first: what is copied nobody waits for."""
        self._hand_out()
        while self._copy_beside_step():
            pass

    def _copy_beside_step(self) -> bool:
        with self._lock:
            return self._core.copy_beside_step()

    def _hand_out(self) -> None:
        """Events of the step before, and of what has begun. While a step computes nobody waits for this."""
        with self._lock:
            events = self._core.settle()
        started, self._started = self._started, []
        if events or started:
            self._sink([*events, *started])

    def _fail_everything(self, message: str) -> None:
        with self._lock:
            events = self._core.fail_all(message, "unavailable")
            self._slot_jobs.fail(message)
        self._constraint_jobs.close()
        events += [FailedEvent(request_id, message, "unavailable") for request_id in self._constraint_jobs.waiting]
        while not self._commands.empty():
            command = self._commands.get()
            if isinstance(command, Submit):
                events.append(FailedEvent(command.request.id, message, "unavailable"))
            elif isinstance(command, SlotJob):
                self._answer(command.number, message)
        self._sink(events)
