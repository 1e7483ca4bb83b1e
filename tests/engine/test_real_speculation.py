"""Drafts on the embedded model: the same bits in fewer steps, whatever is drafted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from pyjet.assets import default_model_path
from pyjet.engine.build import build_native
from pyjet.engine.constraint import Constraints
from pyjet.engine.core import EngineCore
from pyjet.engine.request import Event, FinishedEvent, GenerationRequest, SamplingParams, TokenEvent
from pyjet.engine.sequence import Sequence
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation import DraftOverride
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.model.reader import load_model
from pyjet.native.engine import NativeEngine
from tests.engine.real_engine import build

SETTINGS = EngineSettings(
    str(default_model_path()), n_slots=3, n_ctx_slot=256, n_ctx_total=768, n_ubatch=48, n_threads=2, calibrate=False
)
PROMPT = tuple(200 + i * 37 % 3000 for i in range(60))
ASKED = (
    GenerationRequest("greedy", PROMPT, SamplingParams(temperature=0.0), max_tokens=40),
    GenerationRequest("sampled", PROMPT[:30], SamplingParams(seed=3, temperature=1.2, top_k=0), max_tokens=40),
    GenerationRequest("penalised", PROMPT[9:], SamplingParams(seed=4, repeat_penalty=1.2), max_tokens=40),
    GenerationRequest("probs", PROMPT[:50], SamplingParams(seed=5), max_tokens=40, n_probs=4),
    GenerationRequest("mirostat", PROMPT[:20], SamplingParams(seed=6, mirostat=2), max_tokens=40),
    GenerationRequest(
        "chance", PROMPT[:40], SamplingParams(seed=7, xtc_probability=0.5, dry_multiplier=0.8), max_tokens=40
    ),
)
Answer = list[tuple[int, object]]


@pytest.fixture(scope="module")
def native() -> Iterator[NativeEngine]:
    with build(SETTINGS) as engine:
        yield engine


class Answers:
    """All requests at once in a new core; it has to end between two tests, not the engine."""

    def __init__(
        self,
        native: NativeEngine,
        drafts: SpeculationSettings,
        override: DraftOverride | None = None,
        asked: Iterable[GenerationRequest] = ASKED,
        constraints: Constraints | None = None,
    ) -> None:
        limits = replace(SETTINGS, speculation=drafts).limits(native.n_vocab)
        core = EngineCore(limits, native, draft_override=override, constraints=constraints)
        events: list[Event] = []
        for each in asked:
            constraint = constraints.constraint(each.grammar) if constraints and each.grammar else None
            events += core.submit(each, constraint)
        self.n_steps = 0
        while core.has_work:
            started, batch = core.begin()
            assert batch is not None
            events += started + core.finish(native.step(batch))
            self.n_steps += 1
            core.check()
        self.tokens: dict[str, Answer] = defaultdict(list)
        self.last: dict[str, FinishedEvent] = {}
        for event in events:
            if isinstance(event, TokenEvent):
                self.tokens[event.id].append((event.token, event.probs))
            elif isinstance(event, FinishedEvent):
                self.last[event.id] = event


@pytest.fixture(scope="module")
def plain(native: NativeEngine) -> Answers:
    return Answers(native, SpeculationSettings())


@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize("wrong_at", [0, 2, 7])
def test_drafts_that_are_right_up_to_one(native: NativeEngine, plain: Answers, n: int, wrong_at: int) -> None:
    def override(sequence: Sequence, _: list[int], most: int) -> list[int]:
        n_done = len(sequence.generated)
        drafts = [token for token, _ in plain.tokens[sequence.request.id][n_done : n_done + n]]
        return [token if i != wrong_at else (token + 1) % native.n_vocab for i, token in enumerate(drafts)]

    drafted = Answers(native, SpeculationSettings(), override)
    assert drafted.tokens == plain.tokens
    n_right = min(n, wrong_at)
    assert drafted.n_steps <= plain.n_steps / (1 + n_right) + 12
    for name, last in drafted.last.items():
        assert last.n_context == plain.last[name].n_context
        assert last.timings.draft_n > 0
        assert (last.timings.draft_n_accepted == last.timings.draft_n) == (wrong_at >= n)


@pytest.mark.parametrize("adaptive", [False, True])
def test_lookups(native: NativeEngine, plain: Answers, adaptive: bool) -> None:
    """One token that occurred before is enough, so there are drafts all the time, and few are right."""
    drafts = SpeculationSettings(lookup=True, lookup_min_match=1, adaptive=adaptive)
    drafted = Answers(native, drafts)
    assert drafted.tokens == plain.tokens
    assert any(last.timings.draft_n for last in drafted.last.values())


MTP = SpeculationSettings(mtp=True, n_max=3, adaptive=False)


@pytest.fixture(scope="module")
def drafting() -> Iterator[NativeEngine]:
    """With a draft head of part of the vocabulary, so that blocks of recent tokens matter."""
    with build(replace(SETTINGS, speculation=replace(MTP, n_max=7, draft_vocab=1024))) as engine:
        yield engine


@pytest.mark.parametrize(
    "drafts",
    [
        MTP,
        replace(MTP, n_max=7, sampling="probabilistic"),
        replace(MTP, n_max=2, p_min=0.5, lookup=True, lookup_min_match=1),
        replace(MTP, n_max=7, adaptive=True, lookup=True, lookup_min_match=2),
    ],
)
def test_drafts_of_the_mtp_block(drafting: NativeEngine, plain: Answers, drafts: SpeculationSettings) -> None:
    drafted = Answers(drafting, replace(drafts, draft_vocab=1024))
    assert drafted.tokens == plain.tokens
    timings = [last.timings for last in drafted.last.values()]
    assert sum(each.draft_n for each in timings) > 20
    assert drafted.n_steps < plain.n_steps


def test_the_mtp_block_beside_wrong_drafts(drafting: NativeEngine, plain: Answers) -> None:
    """Whatever is verified instead of what it drafted."""

    def override(sequence: Sequence, drafts: list[int], most: int) -> list[int]:
        return [(token + 1) % drafting.n_vocab if i == 1 else token for i, token in enumerate(drafts)]

    assert Answers(drafting, replace(MTP, draft_vocab=1024), override).tokens == plain.tokens


def test_prices_know_how_many_blocks_look_at_the_context() -> None:
    engine, limits = build_native(SETTINGS, lambda *_: None)
    engine.close()
    model = load_model(SETTINGS.model_path).hyperparams
    assert 0 < limits.attention_blocks == model.block_is_attention.count(True) < model.n_block
