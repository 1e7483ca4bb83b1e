"""Answers that follow a grammar: every token is allowed, and drafts, company and preemption change none of them."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from pyjet.engine.local import LocalEngine
from pyjet.engine.request import FailedEvent, FinishedEvent, SamplingParams, StartedEvent, TokenEvent
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.grammar.description import Grammar, GrammarError
from tests.engine.core_run import Run, expected, request
from tests.engine.fake_constraint import END, FakeConstraint, FakeConstraints, fake_grammar
from tests.engine.fake_native import LIMITS, FakeNative
from tests.engine.test_speculation import check_answers, drafts_of

SAMPLED = SamplingParams(seed=4, temperature=1.2, repeat_penalty=1.3, repeat_last_n=6)
STOP = frozenset({END})
KINDS = {
    "greedy": request("greedy", max_tokens=-1, grammar=fake_grammar(1, 0, 12), stop_ids=STOP),
    "late": request("late", max_tokens=-1, grammar=fake_grammar(2, 5, 9), stop_ids=STOP),
    "sampled": request("sampled", sampling=SAMPLED, max_tokens=-1, grammar=fake_grammar(3, 0, 12), stop_ids=STOP),
    "host": request(
        "host", sampling=replace(SAMPLED, typical_p=0.9), n_probs=3, max_tokens=-1, grammar=fake_grammar(4, 2, 9),
        stop_ids=STOP,
    ),
    "free": request("free", max_tokens=16),
}  # fmt: skip


def test_answers_follow_their_grammars_to_the_end() -> None:
    run = Run(n_slots=5, n_ctx_total=200)
    run.submit(*KINDS.values())
    run.drain()
    check_answers(run, KINDS, set())
    for name in ("greedy", "late", "sampled", "host"):
        assert run.tokens(name)[-1] == END and run.last(name).reason == "eos"
    assert run.tokens("greedy") != expected(replace(KINDS["greedy"], grammar=None))[0]


@pytest.mark.parametrize("n", [1, 3, 7])
def test_drafts_right_and_wrong(n: int) -> None:
    """Right drafts save steps of a constrained answer too, and the text stays."""
    for wrong_at in (0, n // 2, n):
        run = Run(drafts_of(KINDS, n, wrong_at), n_slots=5, max_spec=7, max_rows=64, n_ctx_total=200)
        run.submit(*KINDS.values())
        run.drain()
        check_answers(run, KINDS, set())
        if wrong_at == n:
            assert len(run.native.steps) < len(run.tokens("greedy"))


def test_forced_tokens_are_drafted() -> None:
    drafts = SpeculationSettings(lookup=True, adaptive=False, n_max=3)
    run = Run(max_spec=7, max_rows=64, speculation=drafts)
    run.submit(KINDS["greedy"])
    run.drain()
    check_answers(run, {"greedy": KINDS["greedy"]}, set())
    counters = run.core.counters()
    assert counters.draft_tokens_grammar == counters.draft_tokens_grammar_accepted > 0


def test_an_answer_that_is_complete_ends_even_where_every_end_is_banned() -> None:
    banned = SamplingParams(temperature=0.0, logit_bias=((END, float("-inf")),))
    asked = request(sampling=banned, max_tokens=-1, grammar=fake_grammar(1, 0, 4), stop_ids=STOP)
    run = Run()
    run.submit(asked)
    run.drain()
    assert len(run.tokens("a")) == 4 and run.last("a").reason == "eos"


def test_where_no_token_is_left_the_request_fails() -> None:
    run = Run()
    allowed = FakeConstraint(fake_grammar(1, 0, 4)).allowed()
    banned = SamplingParams(temperature=0.0, logit_bias=tuple((t, float("-inf")) for t in allowed))
    run.submit(request("bad", sampling=banned, grammar=fake_grammar(1, 0, 4)), request("good"))
    run.drain()
    last = run.last("bad")
    assert isinstance(last, FailedEvent) and "grammar and logit_bias ban them all" in last.message
    assert run.tokens("good") == expected(request("good"))[0]


def test_a_parser_that_gives_up_fails_its_request_only() -> None:
    run = Run()
    constraint = FakeConstraint(fake_grammar(1, 0, 9))
    run.note(run.core.submit(request("bad", grammar=fake_grammar(1, 0, 9)), constraint))
    run.submit(request("good"))
    run.steps(2)  # the device chooses the next token
    constraint.error = "too many items"
    run.drain()
    last = run.last("bad")
    assert isinstance(last, FailedEvent) and len(run.tokens("bad")) == 2
    assert last.message == "the grammar cannot be followed any further: too many items"
    assert run.tokens("good") == expected(request("good"))[0]


def test_masks_are_filled_only_where_they_are_needed() -> None:
    run = Run()
    run.submit(request("late", max_tokens=8, grammar=fake_grammar(2, 6, 9)), request("free", max_tokens=8))
    run.drain()
    assert run.core.constraints.n_masks == 2


class SlowConstraints(FakeConstraints):
    """Compiles when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)

    def constraint(self, grammar: Grammar) -> FakeConstraint:
        self.gate.acquire()
        if grammar.lark == "bad":
            raise GrammarError("line 1: no")
        return super().constraint(grammar)


def events_of(engine: LocalEngine, asked) -> list:  # type: ignore[type-arg]
    return list(engine.submit(asked))


def test_compiling_makes_nobody_else_wait() -> None:
    constraints = SlowConstraints()
    with LocalEngine(FakeNative(), LIMITS, constraints) as engine:
        slow = engine.submit(KINDS["greedy"])
        free = events_of(engine, request("free"))
        assert [e.token for e in free if isinstance(e, TokenEvent)] == expected(request("free"))[0]
        assert slow.get(timeout=0.05) is None
        constraints.gate.release()
        events = list(slow)
        assert [e.token for e in events if isinstance(e, TokenEvent)] == expected(KINDS["greedy"])[0]
        assert events[-1].timings.queue_ms > 50, "waiting for the grammar counts"


def test_a_grammar_that_cannot_be_compiled() -> None:
    constraints = SlowConstraints()
    constraints.gate.release()
    with LocalEngine(FakeNative(), LIMITS, constraints) as engine:
        (event,) = events_of(engine, request(grammar=Grammar("bad")))
        assert event == FailedEvent("a", "the grammar cannot be used: line 1: no", "server")
        assert isinstance(events_of(engine, request("b"))[-1], FinishedEvent)
    with LocalEngine(FakeNative(), LIMITS) as engine:
        (event,) = events_of(engine, request(grammar=Grammar("bad")))
        assert event == FailedEvent("a", "this engine has no grammars", "server")


def test_cancelled_while_compiling() -> None:
    constraints = SlowConstraints()
    with LocalEngine(FakeNative(), LIMITS, constraints) as engine:
        stream = engine.submit(KINDS["greedy"])
        engine.cancel("greedy")
        (event,) = list(stream)
        assert isinstance(event, FinishedEvent) and event.reason == "cancelled"
        again = engine.submit(KINDS["greedy"])  # the same id: the first one's grammar is not taken for it
        constraints.gate.release(2)
        events = list(again)
        assert sum(isinstance(e, StartedEvent) for e in events) == 1
        assert [e.token for e in events if isinstance(e, TokenEvent)] == expected(KINDS["greedy"])[0]


def test_the_engine_stops_while_compiling() -> None:
    constraints = SlowConstraints()
    engine = LocalEngine(FakeNative(), LIMITS, constraints)
    stream = engine.submit(KINDS["greedy"])
    engine.close()
    (event,) = list(stream)
    assert event == FailedEvent("greedy", "the engine was stopped", "unavailable")
    constraints.gate.release()
