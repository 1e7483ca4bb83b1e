"""The engine without threads: requests in, steps and their results, events out. One caller at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pyjet.engine.admission import Admission, Waiting
from pyjet.engine.batch import BatchBuilder
from pyjet.engine.chosen import Chosen, ChosenTokens, add_chosen
from pyjet.engine.client import EngineLimits, SlotView
from pyjet.engine.counters import Counters
from pyjet.engine.device_memory import DeviceMemory
from pyjet.engine.prefix_tree import CheckpointKind
from pyjet.engine.request import (
    Event,
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
from pyjet.engine.row_arrays import DraftPlan
from pyjet.engine.sampling import SamplingError
from pyjet.engine.scheduler import plan
from pyjet.engine.sequence import Clock, Sequence
from pyjet.engine.slot_file import SlotFileOwner
from pyjet.engine.snapshot import Snapshot
from pyjet.engine.speculation import DraftOverride, Lesson, Speculation
from pyjet.engine.step_budget import StepBudget
from pyjet.engine.step_costs import StepCosts
from pyjet.native.step import StepBatch, StepResult


class Stepper(DeviceMemory, Protocol):
    """What computes rows and holds pages and states: pyjet.native.NativeEngine, or a fake in tests."""

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult: ...

    def close(self) -> None: ...


@dataclass
class TakenTokens:
    """Tokens that a sequence got in a step, when it had ``n_before``."""

    sequence: Sequence
    n_before: int
    tokens: list[int]
    probs: list[TokenProbs | None] | None = None  # of each; None: nobody wants any
    lesson: Lesson | None = None

    def add(self, chosen: Chosen) -> None:
        """One more."""
        assert self.probs is not None
        self.tokens.append(chosen.token)
        self.probs.append(chosen.probs)


class EngineCore:
    """Decides what runs. ``begin`` gives the next batch, the caller computes it, ``take`` takes the result.

    Between the two it copies pages and states in ``memory``, where the batches are computed. Methods return the
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
    ) -> None:
        self.limits = limits
        self.slot_file_owner = SlotFileOwner(
            limits.model, limits.layout, limits.page_tokens, memory.page_bytes, memory.state_bytes
        )
        self._clock = clock
        self._admission = Admission(limits, memory)
        self._builder = BatchBuilder(limits.max_rows, limits.n_slots, limits.page_tokens, limits.max_spec)
        self._running = self._admission.running
        self._budget = StepBudget(limits.max_rows, limits.step_budget, StepCosts(limits.step_seconds))
        self._speculation = Speculation(limits, draft_override)
        self._plan: list[tuple[Sequence, int]] = []
        self._drafts: DraftPlan | None = None  # of the planned step
        self._news: list[TakenTokens | Event] = []  # that nobody was told yet, in order
        # Sequences whose state is to be kept before they go on: after the step's tokens are on their way.
        self._to_keep: dict[str, CheckpointKind] = {}
        self._counters = Counters(pages_total=self._admission.pool.n_pages)
        self._t_begin = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._admission.waiting)

    def prepare(self) -> bool:
        """While nothing runs: a little of what would take time later. False when nothing is left to do."""
        return self._admission.cache.prepare()

    def submit(self, request: GenerationRequest) -> list[Event]:
        """Queue a request, or say at once why it can never run."""
        id_task = self._counters.requests_total
        self._counters.requests_total += 1
        if not request.prompt:
            return [FinishedEvent(request.id, "none", -1, Timings())]
        if failure := self._impossible(request):
            return [failure]
        prompt = np.array(request.prompt, np.int32)
        self._admission.add(Waiting(request, id_task, self._clock(), prompt))
        return []

    def _impossible(self, request: GenerationRequest) -> FailedEvent | None:
        n_prompt, n_ctx = len(request.prompt), self._admission.n_ctx
        if n_prompt >= n_ctx:
            text = f"request ({n_prompt} tokens) exceeds the available context size ({n_ctx} tokens), "
            return FailedEvent(request.id, text + "try increasing it", "context", n_prompt, n_ctx)
        if min(request.prompt) < 0 or max(request.prompt) >= self.limits.n_vocab:
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
        if self._speculation.is_on:
            self._choose_drafts()
        self._plan = plan(self._running.values(), self.limits.max_rows, self._budget, self.limits.chunk_rows)
        if not self._plan:
            return events, None
        self._drafts = self._speculation.join(self._plan) if self._speculation.is_on else None
        batch = self._builder.build(self._plan, self._drafts)
        self._counters.host_seconds += self._clock() - self._t_begin
        return events, batch

    def _choose_drafts(self) -> None:
        decoding = [s for s in self._running.values() if s.n_computed >= s.n_to_read]
        self._speculation.choose(decoding, len(self._running) - len(decoding))
        for sequence in decoding:
            self._admission.cover(sequence)

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
        self._count_step(result)
        self._observe(result.step_us * 1e-6)
        chosen = ChosenTokens(result)
        self._speculation.read(result, self._drafts)
        for index, (sequence, n_rows) in enumerate(self._plan):
            if sequence.is_decoding:
                chosen.next_sequence(sequence, n_rows, n_rows)
                tokens = chosen.by_device(sequence)
                if tokens is not None and self._goes_on(sequence, tokens):
                    self._take_all(sequence, tokens, index, t_step)
                else:
                    self._take_tokens(sequence, chosen.verified(sequence), index, t_step)
                continue
            self._advance(sequence, n_rows, t_step)
            chosen.next_sequence(sequence, n_rows, int(sequence.is_decoding))
            if sequence.is_decoding:
                self._take_tokens(sequence, chosen.first(sequence), index, t_step)
        self._plan = []
        self._counters.host_seconds += self._clock() - t_step

    def settle(self) -> list[Event]:
        """The events of what was taken, and what can be learned from it. There is time for it while a step computes."""
        news, self._news = self._news, []
        events: list[Event] = []
        for each in news:
            if not isinstance(each, TakenTokens):
                events.append(each)
                continue
            events += self._token_events(each)
            if each.lesson is not None:
                self._speculation.learn(each.lesson)
        if self._speculation.is_on:
            self._speculation.think()
        self._budget.think()
        return events

    def _token_events(self, taken: TakenTokens) -> list[Event]:
        sequence = taken.sequence
        request_id, probs = sequence.request.id, taken.probs or [None] * len(taken.tokens)
        return [
            TokenEvent(request_id, token, of_token, sequence.timings(n))
            for n, (token, of_token) in enumerate(zip(taken.tokens, probs), taken.n_before + 1)
        ]

    def _observe(self, seconds: float) -> None:
        """Learn from what the step took."""
        of_drafts = 0.0
        if self._speculation.is_on:
            of_drafts = self._speculation.observe(seconds)
        self._budget.observe(sum([n_rows for _, n_rows in self._plan]), seconds - of_drafts)

    def _goes_on(self, sequence: Sequence, tokens: list[int]) -> bool:
        """Whether none of its next tokens ends a sequence; as far as that takes no time to say."""
        n, request = len(tokens), sequence.request
        return (
            sequence.n_computed + n + 1 < self._admission.n_ctx
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
        taken = TakenTokens(sequence, len(sequence.generated), [], [])
        self._news.append(taken)
        n_right, is_as_guessed = 0, True
        try:
            for each in chosen:
                taken.add(each)
                n_right += each.is_draft
                is_as_guessed &= each.guess == each.token
                add_chosen(sequence, each, self._clock() if each.by_host else t_step)
                if reason := self._reason_to_stop(sequence, each.token):
                    self._news.append(self._end(sequence, reason))
                    break
        except SamplingError as error:
            self._end(sequence, "cancelled")
            self._news.append(FailedEvent(sequence.request.id, str(error), "server"))
        if self._speculation.is_on:
            taken.lesson = self._speculation.note(sequence, index, taken.tokens, n_right, is_as_guessed=is_as_guessed)

    def _advance(self, sequence: Sequence, n_rows: int, t_step: float) -> None:
        """``n_rows`` more rows are in the context."""
        n_again = sequence.advance(n_rows)
        self._counters.tokens_recomputed += n_again
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
        self._count(timings)
        self._counters.n_tokens_max = max(self._counters.n_tokens_max, sequence.n_reached)
        self._admission.release(sequence)
        dropped = max(0, len(sequence.generated) - timings.predicted_n)
        n_context = sequence.n_reached - dropped
        return FinishedEvent(sequence.request.id, reason, sequence.slot, timings, n_context)

    def _count_step(self, result: StepResult) -> None:
        self._counters.n_decode += 1
        self._counters.n_busy_slots_sum += len(self._running)
        self._counters.step_seconds += result.step_us * 1e-6

    def _count(self, timings: Timings) -> None:
        counters = self._counters
        counters.requests_finished += 1
        counters.queue_seconds += timings.queue_ms * 1e-3
        if timings.predicted_n:
            counters.first_token_seconds += (timings.queue_ms + timings.prompt_ms) * 1e-3
        counters.prompt_tokens += timings.prompt_n
        counters.prompt_tokens_cached += timings.cache_n
        counters.prompt_seconds += timings.prompt_ms * 1e-3
        counters.predicted_tokens += timings.predicted_n
        counters.predicted_tokens_timed += max(0, timings.predicted_n - 1)
        counters.predicted_seconds += timings.predicted_ms * 1e-3

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
        started = [*self._running.values(), *(waiting.sequence for waiting in self._admission.waiting)]
        cache = self._admission.cache
        drafts = self._speculation.counts
        reached = [sequence.n_reached for sequence in started if sequence is not None]
        return replace(
            self._counters,
            n_tokens_max=max(self._counters.n_tokens_max, *reached, 0),
            draft_tokens=drafts.drafted.total(),
            draft_tokens_accepted=drafts.right.total(),
            drafts=drafts.n_drafts,
            accepted_per_position=drafts.right_at,
            draft_tokens_mtp=drafts.drafted["mtp"],
            draft_tokens_mtp_accepted=drafts.right["mtp"],
            draft_tokens_lookup=drafts.drafted["lookup"],
            draft_tokens_lookup_accepted=drafts.right["lookup"],
            preemptions=self._admission.n_preemptions,
            prefix_hits=self._admission.n_hits,
            swaps_out=cache.swaps.moves_out,
            swaps_in=cache.swaps.moves_in,
            swap_seconds=cache.swaps.seconds,
            pages_cached=cache.n_idle_pages,
            checkpoints=cache.n_checkpoints,
            host_bytes=cache.host_bytes,
            requests_processing=len(self._running),
            requests_deferred=len(self._admission.waiting),
            pages_used=self._admission.pool.n_used,
        )

    def slot_is_free(self, id_slot: int) -> bool:
        """Whether nothing runs in a slot, or comes back to it. Slots are counted modulo their number."""
        slot = self._admission.slots.slots[id_slot % self.limits.n_slots]
        return slot.sequence is None and slot.preempted is None

    def slot_snapshot(self, id_slot: int) -> Snapshot | None:
        """What a slot holds, as far as it is kept."""
        return self._admission.cache.snapshot(self._admission.slots.slots[id_slot % self.limits.n_slots].held)

    def slot_put(self, id_slot: int, snapshot: Snapshot) -> bool:
        """A slot holds what was saved; False: there is no room, or the slot's context is too small."""
        if len(snapshot.tokens) >= self._admission.n_ctx or not self._admission.cache.put(snapshot):
            return False
        self._admission.slots.slots[id_slot % self.limits.n_slots].hold(snapshot.tokens)
        return True

    def slot_erase(self, id_slot: int) -> int:
        """Forget what a slot holds; how many tokens that were."""
        slot = self._admission.slots.slots[id_slot % self.limits.n_slots]
        n_tokens = len(slot.held)
        self._admission.cache.erase(slot.held)
        slot.hold(slot.held[:0])
        return n_tokens

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
