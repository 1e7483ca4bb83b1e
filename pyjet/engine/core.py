"""The engine without threads: requests in, steps and their results, events out. One caller at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pyjet.engine.admission import Admission, Waiting
from pyjet.engine.batch import BatchBuilder
from pyjet.engine.chosen import Chosen, ChosenTokens, add_chosen
from pyjet.engine.client import EngineLimits, SlotView
from pyjet.engine.constraint import Constraint, Constraints
from pyjet.engine.counters import Counters
from pyjet.engine.counting import Counting
from pyjet.engine.device_memory import DeviceMemory
from pyjet.engine.mask_rows import MaskRows
from pyjet.engine.pooling import HiddenRows, Pool
from pyjet.engine.prefix_tree import CheckpointKind
from pyjet.engine.request import (
    EmbeddingEvent,
    Event,
    FailedEvent,
    FailureKind,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    ProgressEvent,
    StartedEvent,
    Timings,
)
from pyjet.engine.row_arrays import DraftPlan
from pyjet.engine.sampling import SamplingError
from pyjet.engine.scheduler import plan
from pyjet.engine.sequence import Clock, Sequence
from pyjet.engine.slot_contents import SlotContents
from pyjet.engine.slot_file import SlotFileOwner
from pyjet.engine.speculation import DraftOverride, Speculation
from pyjet.engine.step_budget import StepBudget
from pyjet.engine.step_costs import StepCosts
from pyjet.engine.taken import TakenTokens
from pyjet.native.step import Float32Array, StepBatch, StepResult


class Stepper(DeviceMemory, Protocol):
    """What computes rows and holds pages and states: pyjet.native.NativeEngine, or a fake in tests."""

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        """Compute a batch; its ``fill_masks`` and then ``meanwhile`` are called while that goes on."""
        ...

    def close(self) -> None: ...


class EngineCore:
    """Decides what runs. ``begin`` gives the next batch, the caller computes it, ``take`` takes the result.

    Between ``take`` and ``begin`` it copies pages and states in ``memory``, where the batches are computed, and while a
    batch is computed states that this one does not have (``copy_beside_step``). Methods return the
    events they cause; those of a result come from ``settle``, for which there is time while the next step computes.
    A request's tokens depend on its prompt, sampling and seed only: what else runs, and what ran before, changes when
    they come, never which.
    """

    def __init__(
        self,
        limits: EngineLimits,
        memory: DeviceMemory,
        clock: Clock = time.perf_counter,
        draft_override: DraftOverride | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        self.limits = limits
        self.slot_file_owner = SlotFileOwner(
            limits.model, limits.layout, limits.page_tokens, memory.page_bytes, memory.state_bytes
        )
        self._clock = clock
        self._admission = Admission(limits, memory)
        self.slot_contents = SlotContents(self._admission)
        self.constraints = constraints
        self._masks = MaskRows(limits.n_vocab, limits.n_slots * (limits.max_spec + 1), constraints)
        self._builder = BatchBuilder(
            limits.max_rows, limits.n_slots, limits.page_tokens, limits.max_spec, self._masks
        )
        self._running = self._admission.running
        self._budget = StepBudget(limits.max_rows, limits.step_budget, StepCosts(limits.step_seconds))
        self._speculation = Speculation(limits, draft_override)
        self._plan: list[tuple[Sequence, int]] = []
        self._drafts: DraftPlan | None = None  # of the planned step
        self._news: list[TakenTokens | Event] = []  # that nobody was told yet, in order
        # Sequences whose state is to be kept before they go on: after the step's tokens are on their way.
        self._to_keep: dict[str, CheckpointKind] = {}
        self._counting = Counting(self._admission, self._speculation)
        self._t_begin = self._t_planned = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._admission.waiting)

    @property
    def may_copy(self) -> bool:
        """Whether ``begin`` may copy pages or states, which takes milliseconds: tokens should be told before."""
        return bool(self._to_keep) or self._admission.may_start

    def prepare(self) -> bool:
        """While nothing runs: a little of what would take time later. False when nothing is left to do."""
        return self._admission.cache.prepare()

    def submit(
        self, request: GenerationRequest, constraint: Constraint | None = None, waited: float = 0.0
    ) -> list[Event]:
        """Queue a request, or say at once why it can never run.

        ``constraint``: of its grammar. ``waited``: seconds since it came.
        """
        id_task = self._counting.next_task()
        if not request.prompt:
            return [FinishedEvent(request.id, "none", -1, Timings())]
        prompt = np.array(request.prompt)
        if failure := self._impossible(request, prompt):
            return [failure]
        tokens = prompt.astype(np.int32)
        self._admission.add(Waiting(request, id_task, self._clock() - waited, tokens, constraint=constraint))
        return []

    def _impossible(self, request: GenerationRequest, prompt: npt.NDArray[Any]) -> FailedEvent | None:
        n_prompt, n_ctx = len(prompt), self._admission.n_ctx
        if n_prompt >= n_ctx:
            text = f"request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), "
            return FailedEvent(request.id, text + "try increasing it", "context", n_prompt, n_ctx)
        if prompt.min() < 0 or prompt.max() >= self.limits.n_vocab:
            return FailedEvent(request.id, "Prompt contains invalid tokens", "server")
        return None

    def cancel(self, request_id: str, keep_tokens: int | None = None) -> list[Event]:
        """End a request wherever it is. Unknown ids give no event of their own."""
        return [*self.settle(), *self._cancel(request_id, keep_tokens)]

    def _cancel(self, request_id: str, keep_tokens: int | None) -> list[Event]:
        if (sequence := self._running.get(request_id)) is not None:
            return [self._end(sequence, "cancelled", keep_tokens)]
        if (waiting := self._admission.remove(request_id)) is None:
            return []
        if waiting.sequence is not None:
            return [self._end(waiting.sequence, "cancelled", keep_tokens)]
        queue_ms = (self._clock() - waiting.t_queued) * 1e3
        return [FinishedEvent(request_id, "cancelled", -1, Timings(queue_ms=queue_ms))]

    def begin(self) -> tuple[list[Event], StepBatch | None]:
        """Give running sequences their pages, admit what then fits, assemble the step; no batch when nothing runs."""
        self._t_begin = self._clock()
        for sequence in [self._running[request_id] for request_id in self._to_keep]:
            self._keep_state(sequence)
        self._admission.grow()
        events = [event for sequence in self._admission.admit() for event in self._start(sequence)]
        decoding = [s for s in self._running.values() if s.n_computed >= s.n_to_read]
        if self._speculation.is_on:
            self._choose_drafts(decoding)
        self._masks.of_decoding(decoding)
        self._plan = plan(self._running.values(), self.limits.max_rows, self._budget, self.limits.chunk_rows)
        if not self._plan:
            return events, None
        self._drafts = self._speculation.join(self._plan) if self._speculation.is_on else None
        if len(decoding) < len(self._plan):
            self._masks.of_ending(s for s, n in self._plan if not s.is_decoding and s.n_computed + n == s.n_to_read)
        batch = self._builder.build(self._plan, self._drafts)
        self._t_planned = self._clock()
        self._counting.totals.host_seconds += self._t_planned - self._t_begin
        return events, batch

    def copy_beside_step(self) -> bool:
        """While the step that ``begin`` planned computes: a copy that would take time later, if there is enough now."""
        n_rows = sum(n for _, n in self._plan)
        left = self._budget.costs.seconds(n_rows) - (self._clock() - self._t_planned)
        return self._admission.cache.copy_beside_step(left)

    def _choose_drafts(self, decoding: list[Sequence]) -> None:
        self._speculation.choose(decoding, len(self._running) - len(decoding))
        for s in decoding:
            if s.n_computed + 1 + len(s.verifying) + s.n_draft > s.n_covered:
                self._admission.cover(s)

    def _keep_state(self, sequence: Sequence) -> None:
        """If it has come to a place to come back to."""
        if (kind := self._to_keep.pop(sequence.request.id, None)) is not None:
            self._admission.keep_state(sequence, kind)

    def _start(self, sequence: Sequence) -> list[Event]:
        """Say so and start the clock; who resumes goes on in silence."""
        self._speculation.start(sequence)
        if sequence.is_resumed:
            return []
        sequence.t_started = sequence.t_prompt = self._clock()
        started = StartedEvent(sequence.request.id, sequence.slot, sequence.id_task)
        return [started, self._progress(sequence)] if sequence.request.return_progress else [started]

    def finish(self, result: StepResult) -> list[Event]:
        """``take`` and ``settle``, where nothing computes meanwhile."""
        self.take(result)
        return self.settle()

    def take(self, result: StepResult) -> None:
        """Take the step's numbers: tokens, or logits to sample from; advance, end what is done.

        The next step needs this. What others have to know of it waits for ``settle``.
        """
        t_step = self._clock()
        self._counting.add_step(result)
        self._observe(len(result.argmax), result.step_us * 1e-6)
        chosen, hidden = ChosenTokens(result, self._masks), HiddenRows(result.hidden)
        self._speculation.read(result, self._drafts)
        for index, (sequence, n_rows) in enumerate(self._plan):
            if sequence.n_computed >= sequence.n_to_read:
                chosen.next_sequence(sequence, n_rows, n_rows)
                tokens = chosen.by_device(sequence)
                if tokens is not None and self._goes_on(sequence, tokens):
                    self._take_all(sequence, tokens, index, t_step)
                else:
                    self._take_tokens(sequence, chosen.verified(sequence), index, t_step)
                continue
            chosen.next_sequence(sequence, n_rows, sequence.n_chosen(n_rows))
            first = sequence.n_computed
            self._advance(sequence, n_rows, t_step)
            if sequence.pool is not None:
                begin, end = sequence.pool.wanted(first, n_rows)
                self._take_hidden(sequence, sequence.pool, hidden.next(end - begin))
            elif sequence.is_decoding:
                self._take_tokens(sequence, chosen.first(sequence), index, t_step)
        self._plan = []
        self._counting.totals.host_seconds += self._clock() - t_step

    def settle(self) -> list[Event]:
        """The events of what was taken, and what can be learned from it. There is time for it while a step computes."""
        news, self._news = self._news, []
        events: list[Event] = []
        for each in news:
            if not isinstance(each, TakenTokens):
                events.append(each)
                continue
            events += each.events()
            if each.lesson is not None:
                self._speculation.learn(each.lesson)
        if self._speculation.is_on:
            self._speculation.think()
        self._budget.think()
        return events

    def _observe(self, n_rows: int, seconds: float) -> None:
        """Learn from what the step took."""
        of_drafts = 0.0
        if self._speculation.is_on:
            of_drafts = self._speculation.observe(seconds)
        self._budget.observe(n_rows, seconds - of_drafts)

    def _goes_on(self, sequence: Sequence, tokens: list[int]) -> bool:
        """Whether none of its next tokens ends a sequence; as far as that takes no time to say."""
        n, request = len(tokens), sequence.request
        return (
            (sequence.constraint is None or not sequence.constraint.error)
            and sequence.n_computed + n + 1 < self._admission.n_ctx
            and (sequence.max_tokens is None or len(sequence.generated) + n < sequence.max_tokens)
            and request.time_limit_ms <= 0
            and request.stop_ids.isdisjoint(tokens)
        )

    def _take_all(self, sequence: Sequence, tokens: list[int], index: int, t_step: float) -> None:
        """As ``_take_tokens``, where the device chose all tokens and none of them ends the sequence."""
        taken = TakenTokens(sequence, len(sequence.generated), tokens)
        sequence.n_drafted += len(sequence.verifying)
        sequence.take_drafts(tokens, t_step)
        self._news.append(taken)
        if self._speculation.is_on:
            taken.lesson = self._speculation.note(sequence, index, tokens, len(tokens) - 1)

    def _take_tokens(self, sequence: Sequence, chosen: Iterator[Chosen], index: int, t_step: float) -> None:
        """A sequence's tokens of this step, until one of them ends it. ``index``: its place in the step."""
        taken = TakenTokens(sequence, len(sequence.generated), [], [], [])
        self._news.append(taken)
        n_right, is_as_guessed = 0, True
        try:
            for each in chosen:
                taken.add(each)
                n_right += each.is_draft
                is_as_guessed &= each.guess == each.token
                add_chosen(sequence, each, self._clock() if each.by_host else t_step)
                taken.remember()
                if reason := self._reason_to_stop(sequence, each.token):
                    self._news.append(self._end(sequence, reason))
                    break
        except SamplingError as error:
            self._news.append(self._end_without_token(sequence, str(error)))
        if self._speculation.is_on:
            taken.lesson = self._speculation.note(sequence, index, taken.tokens, n_right, is_as_guessed=is_as_guessed)

    def _take_hidden(self, sequence: Sequence, pool: Pool, rows: Float32Array) -> None:
        """Hidden rows of a sequence whose embedding is wanted; it ends with its prompt."""
        parts = [pool.add(rows, sequence.n_computed), pool.finish() if sequence.is_decoding else None]
        self._news += [EmbeddingEvent(sequence.request.id, part) for part in parts if part is not None]
        if sequence.is_decoding:
            self._news.append(self._end(sequence, "read"))

    def _advance(self, sequence: Sequence, n_rows: int, t_step: float) -> None:
        """``n_rows`` more rows are in the context."""
        n_again = sequence.advance(n_rows)
        self._counting.totals.tokens_recomputed += n_again
        if (kind := sequence.passed_stop()) is not None:
            self._to_keep[sequence.request.id] = kind
        if not sequence.generated and n_again < n_rows:
            sequence.t_prompt = t_step
            if sequence.request.return_progress:
                self._news.append(self._progress(sequence))

    def _progress(self, sequence: Sequence) -> ProgressEvent:
        time_ms = (sequence.t_prompt - sequence.t_started) * 1e3
        n_cached = sequence.n_cached
        return ProgressEvent(sequence.request.id, sequence.n_prompt, n_cached, sequence.n_computed, time_ms)

    def _reason_to_stop(self, sequence: Sequence, token: int) -> FinishReason | None:
        request = sequence.request
        if token in request.stop_ids:
            return "eos"
        if sequence.n_computed + 1 >= self._admission.n_ctx:
            return "context"
        if sequence.max_tokens is not None and len(sequence.generated) >= sequence.max_tokens:
            return "limit"
        if request.time_limit_ms <= 0:
            return None
        elapsed_ms = (sequence.token_times[-1] - sequence.token_times[0]) * 1e3
        return "limit" if elapsed_ms > request.time_limit_ms else None

    def _end(self, sequence: Sequence, reason: FinishReason, keep_tokens: int | None = None) -> FinishedEvent:
        self._keep_state(sequence)
        timings = sequence.timings(keep_tokens)
        self._counting.add_finished(timings, sequence.n_reached)
        self._admission.release(sequence)
        dropped = max(0, len(sequence.generated) - timings.predicted_n)
        n_context = sequence.n_reached - dropped
        return FinishedEvent(sequence.request.id, reason, sequence.slot, timings, n_context, sequence.reuse)

    def _end_without_token(self, sequence: Sequence, error: str) -> Event:
        """No token can be chosen. Where the answer is complete and what ends it is banned, that is the end."""
        is_complete = sequence.constraint is not None and sequence.constraint.is_finished
        finished = self._end(sequence, "eos" if is_complete else "cancelled")
        return finished if is_complete else FailedEvent(sequence.request.id, error, "server")

    def fail_all(self, message: str, kind: FailureKind) -> list[Event]:
        """End every request, running or waiting, with a FailedEvent."""
        self._plan = []
        events = self.settle()
        ids = [*self._running, *(waiting.request.id for waiting in self._admission.waiting)]
        for request_id in ids:
            self._cancel(request_id, None)
        return [*events, *(FailedEvent(request_id, message, kind) for request_id in ids)]

    def slots(self, *, with_tokens: bool = False) -> list[SlotView]:
        return [slot.view(with_tokens=with_tokens) for slot in self._admission.slots.slots]

    def counters(self) -> Counters:
        """A copy with the current gauges."""
        return self._counting.now()

    def forget_all(self) -> None:
        """Keep nothing for prompts to come; what preempted sequences come back to stays."""
        self._admission.cache.clear()

    def check(self) -> None:
        """AssertionError unless pages, slots and sequences agree. For tests and debugging."""
        self._admission.check()
        for s in self._running.values():
            assert s.n_computed <= s.n_reached
            assert not s.generated or s.n_reached == s.n_tokens - 1
            assert not s.is_decoding or s.n_computed == s.n_tokens - 1
