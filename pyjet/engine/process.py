"""The engine in a process of its own, as the server uses it: started again when it dies, cut off from the GIL."""

from __future__ import annotations

import atexit
import itertools
import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from pyjet.engine.build import EngineFactory, build_native
from pyjet.engine.child import engine_main
from pyjet.engine.client import (
    EngineLimits,
    EngineState,
    RequestStream,
    SlotAction,
    SlotActionResult,
    SlotView,
)
from pyjet.engine.counters import Counters
from pyjet.engine.loop import Cancel, Stop, Submit
from pyjet.engine.messages import Died, Events, FromEngine, Loading, Pulse, Query, Ready, Reply, SlotDone, ToEngine
from pyjet.engine.request import GenerationRequest
from pyjet.engine.restarts import RestartPolicy
from pyjet.engine.settings import EngineSettings
from pyjet.engine.slot_answers import SlotAnswers
from pyjet.engine.stall import PULSE_SECONDS, PulseWatch, patience
from pyjet.engine.streams import StreamTable, failed_stream

log = logging.getLogger(__name__)
CLOSE_TIMEOUT = 8.0  # seconds until an engine that does not end by itself is killed
QUERY_TIMEOUT = 2.0  # seconds until /slots and /metrics show the last known values

LoadProgress = Callable[[str, int, int], None]


class EngineProcess:
    """An EngineClient whose engine runs in a spawned child.

    The constructor returns at once with ``state == "loading"``; ``wait_ready`` waits. When the child dies, requests
    in flight get FailedEvent(kind="unavailable") and a new child is started as RestartPolicy allows. An engine that
    cannot even load the first time is not retried: ``state`` is "failed" and ``error`` says why.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        n_vocab: int = 0,
        on_progress: LoadProgress | None = None,
        factory: EngineFactory = build_native,
        restarts: RestartPolicy | None = None,
    ) -> None:
        self._settings = settings
        self._limits = settings.limits(n_vocab)
        self._on_progress = on_progress or (lambda _stage, _done, _total: None)
        self._factory = factory
        self._restarts = restarts or RestartPolicy()
        self._streams = StreamTable()
        self._slot_answers = SlotAnswers()
        self._pipe: Connection | None = None
        self._process: BaseProcess | None = None
        self._send_lock = threading.Lock()
        self._state: EngineState = "loading"
        self._error: str | None = None
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._was_ready = False
        self._numbers = itertools.count()
        self._replies: dict[int, list[SlotView] | Counters | None] = {}
        self._counters = Counters()  # last known of this child
        self._past = Counters()  # of the children before
        self._last_slots: list[SlotView] = []
        self._watch = PulseWatch()
        self._known_stall = False  # the log says that the engine hangs
        self._thread = threading.Thread(target=self._supervise, name="pyjet-engine-pipe", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def error(self) -> str | None:
        return self._error

    @property
    def stall(self) -> str | None:
        return self._watch.verdict(patience(self._limits.patience_seconds, self._limits.step_seconds))

    @property
    def pid(self) -> int | None:
        """Process id of the child, for people and tests."""
        return self._process.pid if self._process is not None else None

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait while the engine loads; whether it is ready now."""
        with self._changed:
            self._changed.wait_for(lambda: self._state != "loading", timeout)
            return self._state == "ready"

    def submit(self, request: GenerationRequest) -> RequestStream:
        stream = self._streams.open(request.id)
        if stream is None:
            return failed_stream(request.id, f"request id {request.id} is in use", "server")
        # The state is read after the stream is registered: a child that dies now fails it in _bury.
        if self._state != "ready" or not self._send(Submit(request)):
            self._streams.fail(request.id, self._why_unavailable())
        return stream

    def cancel(self, request_id: str, keep_tokens: int | None = None) -> None:
        self._send(Cancel(request_id, keep_tokens))

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        value = self._ask(Query(next(self._numbers), "slots_with_tokens" if with_tokens else "slots"))
        if isinstance(value, list):
            self._last_slots = value
        if not self._last_slots:
            return [SlotView(i, self._limits.n_ctx_slot) for i in range(self._limits.n_slots)]
        return self._last_slots

    def counters(self) -> Counters:
        value = self._ask(Query(next(self._numbers), "counters"))
        if isinstance(value, Counters):
            self._counters = value
        return add_counters(self._past, self._counters)

    def slot_action(self, id_slot: int, action: SlotAction, path: str | None = None) -> SlotActionResult:
        # As in submit: a child that dies once the job is registered answers in _bury.
        return self._slot_answers.ask(
            id_slot, action, path, lambda job: self._state == "ready" and self._send(job), self._why_unavailable
        )

    def close(self) -> None:
        atexit.unregister(self.close)
        self._closing.set()
        self._send(Stop())
        self._thread.join(CLOSE_TIMEOUT + 2.0)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, message: ToEngine) -> bool:
        try:
            with self._send_lock:
                if self._pipe is None:
                    return False
                self._pipe.send(message)
                return True
        except (OSError, ValueError):
            return False

    def _ask(self, query: Query) -> list[SlotView] | Counters | None:
        if self._state != "ready":
            return None
        self._replies[query.number] = None
        if self._send(query):
            with self._changed:
                self._changed.wait_for(
                    lambda: self._replies[query.number] is not None or self._state != "ready", QUERY_TIMEOUT
                )
        return self._replies.pop(query.number)

    def _why_unavailable(self) -> str:
        return "Loading model" if self._state == "loading" else self._error or "the engine was stopped"

    def _set_state(self, state: EngineState, error: str | None) -> None:
        with self._changed:
            self._state, self._error = state, error
            self._changed.notify_all()

    def _supervise(self) -> None:
        """The pipe's thread: start a child, listen until it ends, decide what follows."""
        while not self._closing.is_set():
            try:
                cause = self._run_child()
            except Exception as error:  # no process to be had, or a message that cannot be read
                log.exception("the engine process could not be run")
                cause = f"the engine process could not be run: {error}"
            if not self._closing.is_set() and not self._bury(cause):
                return
        self._set_state("stopped", None)
        self._streams.fail_all("the engine was stopped")
        self._slot_answers.fail_all("the engine was stopped")

    def _bury(self, cause: str) -> bool:
        """Tell everyone that the child died, wait as the policy says; whether to start another one."""
        delay = self._restarts.next_delay() if self._was_ready else None
        self._past = add_counters(self._past, self._counters)
        self._past.engine_restarts += delay is not None
        self._counters = Counters()
        self._last_slots = []
        self._set_state("loading" if delay is not None else "failed", cause)
        n_failed = self._streams.fail_all(cause)
        self._slot_answers.fail_all(cause)
        log.error("%s; %d requests in flight failed", cause, n_failed)
        if delay is None:
            return False
        log.warning("starting the engine again in %.2f s", delay)
        self._closing.wait(delay)
        return True

    def _run_child(self) -> str:
        """One child's life; why it ended."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=engine_main, args=(theirs, self._settings, self._factory), name="pyjet-engine", daemon=True
        )
        process.start()
        theirs.close()
        with self._send_lock:
            self._process, self._pipe = process, ours
        try:
            if self._closing.is_set():  # close() may have come before there was a pipe
                self._send(Stop())
            cause = self._listen(ours)
        finally:
            self._watch.stop()
            self._log_stall()
            with self._send_lock:
                self._pipe = None
            ours.close()  # a child that still lives sees this and ends
            process.join(CLOSE_TIMEOUT)
            if process.is_alive():
                process.kill()
                process.join()
        return cause or f"the engine process {how_it_ended(process.exitcode)}"

    def _listen(self, pipe: Connection) -> str | None:
        """Handle messages until the pipe closes; the cause if the child named one."""
        cause = None
        try:
            while True:
                while not pipe.poll(PULSE_SECONDS):
                    self._log_stall()
                message: FromEngine = pipe.recv()
                if isinstance(message, Died):
                    cause = message.message
                else:
                    self._handle(message)
        except (EOFError, OSError):
            return cause

    def _log_stall(self) -> None:
        """Say once that the engine hangs, and once that it goes on."""
        stall = self.stall
        if (stall is not None) == self._known_stall:
            return
        self._known_stall = stall is not None
        if stall is not None:
            log.error("the engine hangs: %s; /health answers 503", stall)
        elif self._state == "ready":
            log.warning("the engine goes on")

    def _handle(self, message: Loading | Ready | Events | Reply | Pulse | SlotDone) -> None:
        if isinstance(message, Events):
            if message.counters is not None:
                self._counters = message.counters
            self._streams.dispatch(message.events)
        elif isinstance(message, Reply):
            with self._changed:
                if message.number in self._replies:
                    self._replies[message.number] = message.value
                    self._changed.notify_all()
        elif isinstance(message, SlotDone):
            self._slot_answers.put(message.number, message.answer)
        elif isinstance(message, Pulse):
            self._watch.note(message.step)
            self._log_stall()
        elif isinstance(message, Ready):
            self._limits = message.limits
            self._watch.start()
            self._was_ready = True
            self._set_state("ready", None)
        else:
            self._on_progress(message.stage, message.done, message.total)


GAUGES = (
    "requests_processing",
    "requests_deferred",
    "pages_used",
    "pages_total",
    "pages_cached",
    "checkpoints",
    "host_bytes",
)


def add_counters(past: Counters, now: Counters) -> Counters:
    """Totals over several engines: sums, the larger maximum, and the gauges of the one that lives."""
    total = replace(now)
    for field in fields(Counters):
        if field.name in GAUGES or field.name == "accepted_per_position":
            continue
        old, new = getattr(past, field.name), getattr(now, field.name)
        setattr(total, field.name, max(old, new) if field.name == "n_tokens_max" else old + new)
    positions = itertools.zip_longest(past.accepted_per_position, now.accepted_per_position, fillvalue=0)
    total.accepted_per_position = tuple(old + new for old, new in positions)
    return total


def how_it_ended(exit_code: int | None) -> str:
    """An exit status in words."""
    if exit_code is None or exit_code >= 0:
        return f"ended with status {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
