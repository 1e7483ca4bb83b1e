"""Drives an EngineCore on a FakeNative, and says what each request must get."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from pyjet.engine.client import EngineLimits
from pyjet.engine.core import EngineCore
from pyjet.engine.request import (
    Event,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    SamplingParams,
    StartedEvent,
    TokenEvent,
)
from pyjet.engine.sampling import Sampler
from pyjet.engine.speculation import DraftOverride
from tests.engine.fake_constraint import FakeConstraint, FakeConstraints, fake_grammar, words_of
from tests.engine.fake_native import LIMITS, N_VOCAB, FakeNative, alone

GREEDY = SamplingParams(temperature=0.0)


def request(name: str = "a", prompt: tuple[int, ...] = (1, 2, 3), **fields: object) -> GenerationRequest:
    return GenerationRequest(**{"id": name, "prompt": prompt, "sampling": GREEDY, "max_tokens": 4, **fields})


def expected(wanted: GenerationRequest, limits: EngineLimits = LIMITS) -> tuple[list[int], str]:
    """Tokens and reason of a request by definition."""
    sampler = Sampler(wanted.sampling, N_VOCAB)
    sampler.accept_prompt(wanted.prompt)
    constraint = None if wanted.grammar is None else FakeConstraint(wanted.grammar)

    def sample(logits):
        is_free = constraint is None or not constraint.is_active
        token, _ = sampler.sample(logits, None if is_free else words_of(constraint.allowed()))
        sampler.accept(token)
        if constraint is not None:
            constraint.accept(token)
        return token

    room = min(limits.n_ctx_slot, limits.n_ctx_total) - len(wanted.prompt)
    limit = room if wanted.max_tokens < 0 else min(room, max(1, wanted.max_tokens))
    tokens = alone(wanted.prompt, limit, sample, wanted.stop_ids)
    if tokens[-1] in wanted.stop_ids:
        return tokens, "eos"
    return tokens, "context" if len(tokens) == room else "limit"


class Run:
    """A core, a fake and everything that was said about each request."""

    def __init__(self, draft_override: DraftOverride | None = None, *, has_state: bool = True, **limits: Any) -> None:
        self.limits = replace(LIMITS, **limits)
        self.native = FakeNative(self.limits, has_state=has_state)
        self.core = EngineCore(
            self.limits, self.native, draft_override=draft_override, constraints=FakeConstraints()
        )
        self.events: dict[str, list[Event]] = defaultdict(list)
        self.started: list[str] = []

    def note(self, events: list[Event]) -> None:
        for event in events:
            said = self.events[event.id]
            assert not said or not isinstance(said[-1], (FinishedEvent, FailedEvent))
            assert not said or not isinstance(event, StartedEvent)
            said.append(event)
            if isinstance(event, StartedEvent):
                self.started.append(event.id)

    def submit(self, *requests: GenerationRequest) -> None:
        for wanted in requests:
            constraint = None if wanted.grammar is None else FakeConstraint(wanted.grammar)
            self.note(self.core.submit(wanted, constraint))

    def submit_as(self, name: str, wanted: GenerationRequest) -> GenerationRequest:
        """The request under its name, which is how it was submitted."""
        named = replace(wanted, id=name)
        self.submit(named)
        return named

    def step(self) -> None:
        has_work = self.core.has_work
        events, batch = self.core.begin()
        self.note(events)
        assert (batch is not None) == has_work, "work is left and nothing runs"
        self.core.check()
        if batch is not None:
            self.note(self.core.finish(self.native.step(batch, self._beside_step)))
        self.core.check()

    def _beside_step(self) -> None:
        """What EngineLoop does, with every step long enough for a copy."""
        with mock.patch.object(self.core._budget.costs, "seconds", return_value=math.inf):
            while self.core.copy_beside_step():
                self.core.check()

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.step()

    def play(self, actions: Iterable[Any]) -> tuple[dict[str, GenerationRequest], set[str]]:
        """Do what is said and let all requests end: submit a request, run so many steps, ("cancel", number, keep).

        Returns the requests by name, r0 first, and the names that were cancelled.
        """
        wanted: dict[str, GenerationRequest] = {}
        cancelled = set()
        for action in actions:
            if isinstance(action, GenerationRequest):
                name = f"r{len(wanted)}"
                wanted[name] = self.submit_as(name, action)
            elif isinstance(action, int):
                self.core.prepare()
                self.steps(action)
            else:
                _, number, keep_tokens = action
                cancelled.add(f"r{number}")
                self.note(self.core.cancel(f"r{number}", keep_tokens))
                self.core.check()
        self.drain()
        return wanted, cancelled

    def drain(self) -> None:
        """The most urgent request advances in each step, and only more urgent ones can undo what others did."""
        n_requests = len(self.events) + self.core.counters().requests_deferred
        for _ in range((n_requests + 1) ** 2 * self.limits.n_ctx_slot):
            if not self.core.has_work:
                return
            self.step()
        raise AssertionError("requests do not end")

    def tokens(self, name: str) -> list[int]:
        return [e.token for e in self.events[name] if isinstance(e, TokenEvent)]

    def last(self, name: str) -> Event:
        return self.events[name][-1]

    def check_all_ended(self) -> list[FinishedEvent]:
        """No request holds anything, and the counters are the sums over the finished requests, which are returned."""
        self.core.forget_all()
        counters = self.core.counters()
        assert counters.pages_used == counters.requests_processing == counters.requests_deferred == 0
        finished = [e for events in self.events.values() for e in events if isinstance(e, FinishedEvent)]
        assert counters.predicted_tokens == sum(e.timings.predicted_n for e in finished)
        assert counters.prompt_tokens == sum(e.timings.prompt_n for e in finished)
        assert counters.draft_tokens >= sum(e.timings.draft_n for e in finished)
        assert counters.draft_tokens_accepted == sum(counters.accepted_per_position)
        return finished


SAMPLING = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    seed=st.integers(0, 1000),
    top_k=st.sampled_from([0, 5, 40]),
    repeat_penalty=st.sampled_from([1.0, 1.3]),
    repeat_last_n=st.sampled_from([-1, 0, 4, 64]),
)


def requests(longest_prompt: int, max_tokens: tuple[int, ...]) -> st.SearchStrategy[GenerationRequest]:
    """Requests without a name, of every kind."""
    return st.builds(
        GenerationRequest,
        id=st.just(""),
        prompt=st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=longest_prompt).map(tuple),
        sampling=SAMPLING,
        max_tokens=st.sampled_from(max_tokens),
        stop_ids=st.sampled_from([frozenset(), frozenset({3, 7, 11})]),
        id_slot=st.sampled_from([-1, -1, 0, 4]),
        priority=st.integers(0, 1),
        return_progress=st.booleans(),
        grammar=st.sampled_from([None, None, fake_grammar(1, 0, 6), fake_grammar(2, 0, 99), fake_grammar(3, 4, 5)]),
    )
