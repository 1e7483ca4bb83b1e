"""The engine as the server sees it: submit a request, read its events, cancel it, look at slots and counters."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from pyjet.engine.counters import Counters
from pyjet.engine.request import Event, FailedEvent, FinishedEvent, GenerationRequest, SamplingParams
from pyjet.engine.speculation_settings import NO_SPECULATION, SpeculationSettings

EngineState = Literal["loading", "ready", "failed", "stopped"]


STEP_BUDGET = 3.2  # default of EngineLimits.step_budget


@dataclass(frozen=True)
class EngineLimits:
    """Fixed sizes of an engine, in tokens unless said otherwise."""

    n_slots: int
    n_ctx_slot: int  # longest sequence of a slot
    n_ctx_total: int  # all slots together: the page pool
    n_vocab: int
    max_rows: int  # rows of one step
    page_tokens: int = 64
    n_extra_states: int = 1  # recurrent states that the device holds besides those of the slots
    host_bytes: int | None = None  # for pages and states that left the device; None: no limit
    max_checkpoints: int = 128
    checkpoint_step: int = 8192
    checkpoint_gap: int = 64  # fewer tokens are read again rather than kept, or waited for
    max_spec: int = 0  # speculative rows of a sequence and step at most
    slot_similarity: float = 0.1
    model: str = ""  # fingerprint of its file
    layout: str = ""  # device and KV types: they decide how pages are stored
    step_budget: float = STEP_BUDGET  # steps with prompt rows take so many times as long as others, at most
    chunk_rows: int = 0  # of a step that reads a long prompt; 0: max_rows
    step_seconds: tuple[tuple[int, float], ...] = ()  # (rows, seconds) of steps measured at load
    speculation: SpeculationSettings = NO_SPECULATION
    draft_seconds: tuple[float, ...] = ()  # DraftCosts measured at load
    attention_blocks: int = 0  # of the model, the MTP block not counted; 0: unknown
    patience_seconds: float = 120.0  # a step that takes longer hangs, unless steps are known to be slow

    @property
    def n_state_slots(self) -> int:
        return self.n_slots + self.n_extra_states


@dataclass(frozen=True)
class SlotView:
    """One slot, copied between two steps.

    A preempted request is still shown as processing, in the slot it had, until another takes that slot. After a
    request ends its prompt, settings and tokens stay until the next one starts; the numbers of its work do not.
    """

    id: int
    n_ctx: int
    is_processing: bool = False
    id_task: int = -1  # -1: never used
    request_id: str | None = None
    n_prompt: int = 0
    n_tokens: int = 0  # computed tokens the slot holds, of prompt and answer
    n_prompt_processed: int = 0
    n_cached: int = 0
    n_decoded: int = 0
    n_remain: int = -1  # tokens left of max_tokens; -1 without limit and in an idle slot
    has_next_token: bool = False
    max_tokens: int = -1
    n_probs: int = 0
    sampling: SamplingParams | None = None
    prompt: tuple[int, ...] = ()
    generated: tuple[int, ...] = ()


SlotAction = Literal["save", "restore", "erase"]


@dataclass(frozen=True)
class SlotActionResult:
    """What was saved, restored or erased: tokens, bytes of the file (0 without one) and milliseconds."""

    n_tokens: int
    n_bytes: int
    ms: float


class SlotActionError(Exception):
    """The action could not be done; the message says why."""


class RequestStream:
    """Events of one request, in order. One thread reads; the engine's thread writes."""

    def __init__(self, request_id: str) -> None:
        self.id = request_id
        self.closed = False  # the last event has been read
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        """For engines: append an event."""
        self._events.put(event)

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None after ``timeout`` seconds without one, or when the stream is closed."""
        if self.closed:
            return None
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        self.closed = isinstance(event, (FinishedEvent, FailedEvent))
        return event

    def __iter__(self) -> Iterator[Event]:
        while (event := self.get()) is not None:
            yield event


class EngineClient(Protocol):
    """Every method may be called from any thread and returns without waiting for a step."""

    @property
    def limits(self) -> EngineLimits: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def error(self) -> str | None:
        """Why the engine is not ready: the last failure, for people."""
        ...

    @property
    def stall(self) -> str | None:
        """What shows that a ready engine hangs, for people; None: it gets on. It may still recover."""
        ...

    def submit(self, request: GenerationRequest) -> RequestStream:
        """Queue a request. Problems arrive as a FailedEvent in the stream, never as an exception."""
        ...

    def cancel(self, request_id: str, keep_tokens: int | None = None) -> None:
        """End a request within one step; its stream gets FinishedEvent(reason="cancelled").

        ``keep_tokens``: the caller uses only the first so many tokens (it found a stop string); timings and
        counters then cover only these. Unknown ids are ignored.
        """
        ...

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        """All slots; ``with_tokens`` also fills ``prompt`` and ``generated``."""
        ...

    def counters(self) -> Counters: ...

    def slot_action(self, id_slot: int, action: SlotAction, path: str | None = None) -> SlotActionResult:
        """Save what a slot holds to a file, restore it from one, or forget it; waits until the slot is free.

        ``id_slot`` is taken modulo the number of slots. Raises SlotActionError.
        """
        ...

    def close(self) -> None:
        """Stop; requests in flight get FailedEvent(kind="unavailable"). Idempotent."""
        ...
