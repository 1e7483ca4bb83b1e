"""Constrained answers of the embedded model: the same bits alone, beside others and with drafts of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pyjet.engine.build import build_constraints, build_native
from pyjet.engine.local import LocalEngine
from pyjet.engine.process import EngineProcess
from pyjet.engine.request import FailedEvent, GenerationRequest, SamplingParams, TokenEvent
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.grammar.description import Grammar, Mark
from pyjet.grammar.gbnf_lark import gbnf_to_lark
from pyjet.grammar.json_schema import json_rule
from pyjet.grammar.matcher import GrammarCompiler
from pyjet.native.engine import NativeEngine
from pyjet.native.step import StepBatch, StepResult
from tests.engine.real_engine import build
from tests.engine.test_real_speculation import MTP, PROMPT, SETTINGS, Answers
from tests.server.scripted import tiny_tokenizer

PERSON = {"type": "object", "properties": {"first_name": {"type": "string", "maxLength": 12},
          "kind": {"enum": ["administrator", "author"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["first_name", "kind", "age"]}  # fmt: skip
SCHEMA = Grammar(f"start: {json_rule(PERSON)}")
LIST = Grammar(gbnf_to_lark('root ::= "[" item ("," item)* "]"\nitem ::= [0-9]{1,3} | root'))
LATE = Grammar(gbnf_to_lark('root ::= "=" [x-z]{9} "."'), Mark(("=",), is_part=True))
EXAMPLE = tiny_tokenizer().encode('{"first_name": "Ann", "kind": "author", "age": 47}\n[3,[14,15]]\n')
EQUALS = tiny_tokenizer().encode("=")[0]


def asked(name: str, grammar: Grammar | None, **sampling: object) -> GenerationRequest:
    return GenerationRequest(
        name, (*PROMPT[: len(name)], *EXAMPLE), SamplingParams(**sampling), max_tokens=80, grammar=grammar,
        stop_ids=tiny_tokenizer().eog_ids, n_probs=3 if name == "probs" else 0,
    )  # fmt: skip


ASKED = (
    asked("greedy", SCHEMA, temperature=0.0),
    asked("sampled", SCHEMA, seed=3, temperature=1.3, top_k=0),
    asked("list", LIST, seed=4, repeat_penalty=1.2),
    asked("probs", SCHEMA, seed=5),
    asked("late", LATE, seed=6, temperature=0.6, logit_bias=((EQUALS, 9.0),)),
    asked("free", None, seed=7),
)


@pytest.fixture(scope="module")
def constraints() -> GrammarCompiler:
    return build_constraints(SETTINGS)


@pytest.fixture(scope="module")
def native() -> Iterator[NativeEngine]:
    with build(replace(SETTINGS, speculation=MTP)) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(native: NativeEngine, constraints: GrammarCompiler) -> Answers:
    return Answers(native, SpeculationSettings(), asked=ASKED, constraints=constraints)


def text(answers: Answers, name: str) -> str:
    return tiny_tokenizer().decode((token for token, _ in answers.tokens[name]), special=False)


def test_answers_follow_their_grammars(plain: Answers) -> None:
    assert text(plain, "greedy").startswith("{")  # the model is fond of white space, so it may not end
    for name in ("sampled", "probs"):
        assert plain.last[name].reason == "eos"
        assert list(json.loads(text(plain, name))) == ["first_name", "kind", "age"]
    assert set(text(plain, "list")) <= set("[],0123456789")
    _, found, behind = text(plain, "late").rpartition("=")
    assert found and len(behind) == 10 and set(behind[:9]) <= set("xyz") and behind[9] == "."


def test_alone_as_beside_others(native: NativeEngine, plain: Answers, constraints: GrammarCompiler) -> None:
    for one in ASKED:
        alone = Answers(native, SpeculationSettings(), asked=(one,), constraints=constraints)
        assert alone.tokens[one.id] == plain.tokens[one.id]


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("wrong_at", [0, 2, 7])
def test_drafts_that_are_right_up_to_one(
    native: NativeEngine, plain: Answers, constraints: GrammarCompiler, n: int, wrong_at: int
) -> None:
    def override(sequence: Sequence, _: list[int], most: int) -> list[int]:
        n_done = len(sequence.generated)
        drafts = [token for token, _ in plain.tokens[sequence.request.id][n_done : n_done + n]]
        return [token if i != wrong_at else (token + 1) % native.n_vocab for i, token in enumerate(drafts)]

    drafted = Answers(native, SpeculationSettings(), override, ASKED, constraints)
    assert drafted.tokens == plain.tokens
    if wrong_at >= n:
        assert drafted.n_steps < plain.n_steps


@pytest.mark.parametrize(
    "drafts", [MTP, replace(MTP, adaptive=True, lookup=True), SpeculationSettings(lookup=True, adaptive=False)]
)
def test_drafts_of_every_source(
    native: NativeEngine, plain: Answers, constraints: GrammarCompiler, drafts: SpeculationSettings
) -> None:
    drafted = Answers(native, drafts, asked=ASKED, constraints=constraints)
    assert drafted.tokens == plain.tokens
    assert drafted.n_steps < plain.n_steps and drafted.last["greedy"].timings.draft_n_accepted > 0


class EarlyMasks:
    """An engine whose steps begin when their masks are complete."""

    def __init__(self, native: NativeEngine) -> None:
        self._native = native

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def step(self, batch: StepBatch) -> StepResult:
        if batch.fill_masks is not None:
            batch.fill_masks()
        return self._native.step(replace(batch, fill_masks=None))


@pytest.mark.parametrize("drafts", [SpeculationSettings(), MTP])
def test_masks_before_a_step_make_no_other_text(
    native: NativeEngine, plain: Answers, constraints: GrammarCompiler, drafts: SpeculationSettings
) -> None:
    early = Answers(EarlyMasks(native), drafts, asked=ASKED, constraints=constraints)  # type: ignore[arg-type]
    assert early.tokens == plain.tokens


class FailingConstraints:
    """Masks cannot be filled after a few steps."""

    def __init__(self, inner: GrammarCompiler) -> None:
        self._inner = inner
        self._n = 5

    def constraint(self, grammar: Grammar) -> Any:
        return self._inner.constraint(grammar)

    def fill(self, parts: Any, masks: Any) -> None:
        self._n -= 1
        if not self._n:
            raise RuntimeError("the parser fell over")
        self._inner.fill(parts, masks)


def test_masks_that_fail_end_the_engine_and_nobody_waits(constraints: GrammarCompiler) -> None:
    native, limits = build_native(SETTINGS, lambda *_: None)
    with LocalEngine(native, limits, FailingConstraints(constraints)) as engine:
        for stream in [engine.submit(one) for one in ASKED]:
            last = list(stream)[-1]
            assert isinstance(last, FailedEvent) and "the parser fell over" in last.message


class OneBroken:
    """The parser of one grammar has given up before its answer begins."""

    def __init__(self, inner: GrammarCompiler) -> None:
        self._inner = inner

    def constraint(self, grammar: Grammar) -> Any:
        constraint = self._inner.constraint(grammar)
        if grammar is LIST:
            constraint.accept(EQUALS)
        return constraint

    def fill(self, parts: Any, masks: Any) -> None:
        self._inner.fill(parts, masks)


def test_a_parser_that_gives_up_ends_its_own_request_only(
    native: NativeEngine, plain: Answers, constraints: GrammarCompiler
) -> None:
    answers = Answers(native, SpeculationSettings(), asked=ASKED, constraints=OneBroken(constraints))
    assert not answers.tokens["list"] and "list" not in answers.last, "it has failed"
    for one in ASKED:
        assert one.id == "list" or answers.tokens[one.id] == plain.tokens[one.id]


def test_grammars_in_the_engines_own_process(plain: Answers) -> None:
    with EngineProcess(SETTINGS, n_vocab=tiny_tokenizer().n_vocab) as engine:
        assert engine.wait_ready(120)
        streams = [engine.submit(one) for one in ASKED]
        for one, stream in zip(ASKED, streams):
            events = [(event.token, event.probs) for event in stream if isinstance(event, TokenEvent)]
            assert events == plain.tokens[one.id]
