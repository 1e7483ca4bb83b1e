"""An EngineClient that says exactly what a test wants: token ids, batch sizes, pauses and failures."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyjet.engine.client import (
    EngineLimits,
    EngineState,
    RequestStream,
    SlotAction,
    SlotActionError,
    SlotActionResult,
    SlotView,
)
from pyjet.engine.counters import Counters
from pyjet.engine.request import (
    FailedEvent,
    FailureKind,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    ProgressEvent,
    StartedEvent,
    Timings,
    TokenEvent,
    TokenProbs,
)


@dataclass
class Script:
    """What the engine does with one request. Delays are seconds."""

    tokens: Sequence[int]  # repeated from the start with ``repeat``
    batch: int = 1  # tokens that appear at once, as one step with speculation would give them
    delay: float = 0.0  # before each step
    prefill_delay: float = 0.0  # between StartedEvent and the first token
    pause_after: int = -1  # after so many tokens wait for ``resume``
    fail_after: int = -1  # after so many tokens send FailedEvent; 0: before StartedEvent
    fail_message: str = "scripted failure"
    fail_kind: FailureKind = "server"
    progress: Sequence[int] = ()  # processed counts of the ProgressEvents
    cached: int = 0
    repeat: bool = False
    probs: Callable[[int, GenerationRequest], TokenProbs] | None = None
    drafted: int = 0  # tokens that each step after the first verifies
    accepted: int = 0  # of which so many are right


class _Running:
    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.stream = RequestStream(request.id)
        self.cancelled = threading.Event()
        self.keep_tokens: int | None = None
        self.slot = -1
        self.n_decoded = 0


MOST_PROBS = 1000  # as a vocabulary has an end


def uniform_probs(token: int, request: GenerationRequest) -> TokenProbs:
    """The chosen token first, its neighbours by id after it, each half as likely as the one before."""
    n = min(request.n_probs, MOST_PROBS)
    chances = [2.0 ** -(rank + 1) for rank in range(n)]
    if request.post_sampling_probs:
        return TokenProbs(0.5, tuple((abs(token - rank), chance) for rank, chance in enumerate(chances)))
    logs = [-0.6931471805599453 * (rank + 1) for rank in range(n)]
    return TokenProbs(logs[0], tuple((abs(token - rank), log) for rank, log in enumerate(logs)))


class ScriptedEngine:
    """Each request takes the next script; the last one stays for all that follow.

    Requests wait for a free slot in order, honour ``max_tokens``, ``stop_ids`` and the context size as the real
    engine does, and can be cancelled at any point. ``requests``, ``cancels`` and ``slot_actions`` record what was
    asked.
    """

    def __init__(
        self,
        *scripts: Script,
        n_slots: int = 4,
        n_ctx_slot: int = 4096,
        n_vocab: int = 1 << 20,
        state: EngineState = "ready",
    ) -> None:
        self._scripts = deque(scripts)
        self._limits = EngineLimits(n_slots, n_ctx_slot, n_slots * n_ctx_slot, n_vocab, 512)
        self._state: EngineState = state
        self._lock = threading.Condition()
        self._free = list(range(n_slots))
        self._running: dict[str, _Running] = {}
        self._waiting: deque[str] = deque()
        self._counters = Counters()
        self.resume = threading.Event()
        self.requests: list[GenerationRequest] = []
        self.cancels: list[tuple[str, int | None]] = []
        self.finished: dict[str, FinishedEvent] = {}
        self.slot_actions: list[tuple[int, SlotAction, str | None]] = []
        self.stall: str | None = None
        self.slot_answer: SlotActionResult | SlotActionError = SlotActionResult(9, 59944, 0.25)

    # what tests call

    def say(self, *scripts: Script) -> None:
        """Replace the scripts that are left."""
        with self._lock:
            self._scripts = deque(scripts)

    def wait_idle(self, timeout: float = 5.0) -> bool:
        """Whether all requests have ended within ``timeout`` seconds."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._running, timeout)

    # EngineClient

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def error(self) -> str | None:
        return "scripted" if self._state == "failed" else None

    def submit(self, request: GenerationRequest) -> RequestStream:
        running = _Running(request)
        with self._lock:
            self.requests.append(request)
            script = self._scripts.popleft() if len(self._scripts) > 1 else self._scripts[0]
            self._running[request.id] = running
            self._waiting.append(request.id)
        threading.Thread(target=self._run, args=(running, script), daemon=True).start()
        return running.stream

    def cancel(self, request_id: str, keep_tokens: int | None = None) -> None:
        with self._lock:
            self.cancels.append((request_id, keep_tokens))
            running = self._running.get(request_id)
            if running is not None:
                running.keep_tokens = keep_tokens
                running.cancelled.set()
                self._lock.notify_all()

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        with self._lock:
            busy = {r.slot: r for r in self._running.values() if r.slot >= 0}
            return [self._slot_view(i, busy.get(i)) for i in range(self._limits.n_slots)]

    def counters(self) -> Counters:
        return self._counters

    def slot_action(self, id_slot: int, action: SlotAction, path: str | None = None) -> SlotActionResult:
        """Gives ``slot_answer`` once the slot is free."""
        with self._lock:
            self._lock.wait_for(lambda: id_slot in self._free)
            self.slot_actions.append((id_slot, action, path))
        if isinstance(self.slot_answer, SlotActionError):
            raise self.slot_answer
        return self.slot_answer

    def close(self) -> None:
        self._state = "stopped"

    # one thread per request

    def _slot_view(self, slot: int, running: _Running | None) -> SlotView:
        if running is None:
            return SlotView(slot, self._limits.n_ctx_slot)
        request = running.request
        return SlotView(
            slot,
            self._limits.n_ctx_slot,
            is_processing=True,
            id_task=self.requests.index(request),
            request_id=request.id,
            n_prompt=len(request.prompt),
            n_prompt_processed=len(request.prompt),
            n_decoded=running.n_decoded,
            has_next_token=True,
            sampling=request.sampling,
            prompt=request.prompt,
        )

    def _run(self, running: _Running, script: Script) -> None:
        request = running.request
        if script.fail_after == 0:
            self._fail(running, script)
            return
        if self._take_slot(running):
            running.stream.put(StartedEvent(request.id, running.slot))
            for processed in script.progress:
                running.stream.put(
                    ProgressEvent(request.id, len(request.prompt), script.cached, processed, float(processed))
                )
            reason = self._generate(running, script)
            if reason is None:
                self._fail(running, script)
                return
        else:
            reason = "cancelled"
        self._finish(running, script, reason)

    def _take_slot(self, running: _Running) -> bool:
        request = running.request

        def can_start() -> bool:
            return running.cancelled.is_set() or (bool(self._free) and self._waiting[0] == request.id)

        with self._lock:
            self._lock.wait_for(can_start)
            self._waiting.remove(request.id)
            self._lock.notify_all()
            if running.cancelled.is_set():
                return False
            running.slot = request.id_slot if request.id_slot in self._free else self._free[-1]
            self._free.remove(running.slot)
            return True

    def _generate(self, running: _Running, script: Script) -> FinishReason | None:
        """Send the script's tokens; why it ended, None for a scripted failure."""
        request = running.request
        limit = max(1, request.max_tokens) if request.max_tokens >= 0 else 1 << 60
        if running.cancelled.wait(script.prefill_delay):
            return "cancelled"
        position = 0
        while position < len(script.tokens) or script.repeat:
            if script.delay and position % script.batch == 0:
                running.cancelled.wait(script.delay)
            if position == script.pause_after:
                while not (self.resume.is_set() or running.cancelled.is_set()):
                    time.sleep(0.002)
            if position == script.fail_after:
                return None
            if running.cancelled.is_set() and position % script.batch == 0:
                return "cancelled"
            token = script.tokens[position % len(script.tokens)]
            position += 1
            running.n_decoded = position
            probs = (script.probs or uniform_probs)(token, request) if request.n_probs else None
            memory = (float(token),) if request.sampling.mirostat else ()
            running.stream.put(TokenEvent(request.id, token, probs, self._timings(running, script), memory))
            if token in request.stop_ids:
                return "eos"
            if position >= limit:
                return "limit"
            if len(request.prompt) + position >= self._limits.n_ctx_slot:
                return "context"
        if position == script.fail_after:
            return None
        running.cancelled.wait()  # a script that ends without an end token: the model thinks for ever
        return "cancelled"

    def _timings(self, running: _Running, script: Script) -> Timings:
        n = running.n_decoded
        if running.keep_tokens is not None:
            n = min(n, running.keep_tokens)
        prompt_n = len(running.request.prompt) - script.cached
        steps = max(0, n - 1) // (script.accepted + 1)
        return Timings(
            script.cached, prompt_n, 2.0 * prompt_n, n, max(0.001, 10.0 * (n - 1)) if n else 0.0, 0.0,
            draft_n=steps * script.drafted, draft_n_accepted=steps * script.accepted,
        )  # fmt: skip

    def _finish(self, running: _Running, script: Script, reason: FinishReason) -> None:
        timings = self._timings(running, script)
        n_context = len(running.request.prompt) + max(0, timings.predicted_n - 1)
        event = FinishedEvent(running.request.id, reason, running.slot, timings, n_context)
        self._release(running)
        self.finished[event.id] = event
        running.stream.put(event)

    def _fail(self, running: _Running, script: Script) -> None:
        request = running.request
        if script.fail_after == 0:
            with self._lock:
                self._waiting.remove(request.id)
        self._release(running)
        running.stream.put(
            FailedEvent(request.id, script.fail_message, script.fail_kind, len(request.prompt), self._limits.n_ctx_slot)
        )

    def _release(self, running: _Running) -> None:
        with self._lock:
            self._running.pop(running.request.id, None)
            if running.slot >= 0:
                self._free.append(running.slot)
                self._free.sort()
            self._lock.notify_all()
