"""Log-probabilities of verified rows have the bits that they have without drafts: with wrong ids at every position,
behind prefixes that were kept or moved, in sequences that were preempted. All of it with the embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from pyjet.assets import default_model_path
from pyjet.engine.core import EngineCore
from pyjet.engine.request import Event, FinishedEvent, GenerationRequest, SamplingParams, TokenEvent, TokenProbs
from pyjet.engine.sequence import Sequence
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation import DraftOverride
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.native.engine import NativeEngine
from tests.engine.broken_verifiers import lose_states
from tests.engine.real_engine import build

MTP = SpeculationSettings(mtp=True, n_max=3, draft_vocab=1024, adaptive=False)
DRAFTS = {
    "known": SpeculationSettings(),  # by an override, which needs no source
    "mtp": MTP,
    "mtp and lookups": replace(MTP, n_max=7, lookup=True, lookup_min_match=1, adaptive=True),
}
SETTINGS = EngineSettings(
    str(default_model_path()), n_slots=2, n_ctx_slot=128, n_ctx_total=128, n_ubatch=24, page_tokens=16, n_threads=2,
    kv_type_k="q8_0", kv_type_v="q8_0", calibrate=False, speculation=replace(MTP, n_max=7),
)  # fmt: skip
TEXT = tuple(200 + i * 37 % 3000 for i in range(120))
OTHER = tuple(reversed(TEXT))
Answer = list[tuple[int, "TokenProbs | None"]]  # equal only if the logits are
STEP_US = 1000.0  # whatever rows a step has: with what it really takes, drafts might not pay on a busy machine


def request(prompt: tuple[int, ...], **fields: object) -> GenerationRequest:
    """Every other one is greedy, with logits for its probabilities all the same."""
    sampling = SamplingParams(seed=len(prompt), temperature=0.8 * (len(prompt) % 2))
    return replace(GenerationRequest("", prompt, sampling, max_tokens=12, n_probs=4), **fields)


class Known:
    """Drafts from answers that are known: 7 of them, one wrong at each position in turn, then none."""

    def __init__(self, n_vocab: int) -> None:
        self.n_vocab = n_vocab
        self.answers: dict[tuple[int, ...], Answer] = {}
        self.wrong_at: list[int] = []  # of each step of a sequence

    def __call__(self, sequence: Sequence, _: list[int], most: int) -> list[int]:
        n_done = len(sequence.generated)
        drafts = [token for token, _ in self.answers.get(sequence.request.prompt, [])[n_done : n_done + most]]
        wrong_at = len(self.wrong_at) % 8
        self.wrong_at.append(wrong_at)
        return [(token + (i == wrong_at)) % self.n_vocab for i, token in enumerate(drafts)]


class Engine:
    """A new core on a native engine that others had before, so that it is the only one there that keeps anything.

    ``plain``: one on another native engine; it gets no drafts.
    """

    def __init__(self, native: NativeEngine, kind: str = "", plain: Engine | None = None) -> None:
        self.plain = plain or self
        self.native = native
        self.known = Known(native.n_vocab)
        drafts = DRAFTS[kind] if kind else SpeculationSettings()
        override: DraftOverride | None = self.known if kind == "known" else None
        limits = replace(SETTINGS, speculation=drafts).limits(native.n_vocab)
        self.core = EngineCore(limits, native, draft_override=override)

    def ask(self, *requests: GenerationRequest) -> list[tuple[Answer, FinishedEvent]]:
        """All at once; when they have ended, the core is as it was but for what it keeps."""
        events: list[Event] = []
        for i, each in enumerate(requests):
            events += self.core.submit(replace(each, id=str(i)))
        while self.core.has_work:
            started, batch = self.core.begin()
            assert batch is not None
            result = self.native.step(batch)
            result.step_us = STEP_US
            events += started + self.core.finish(result)
            self.core.check()
        answers: list[Answer] = [[] for _ in requests]
        ends: dict[str, FinishedEvent] = {}
        for event in events:
            if isinstance(event, TokenEvent):
                answers[int(event.id)].append((event.token, event.probs))
            elif isinstance(event, FinishedEvent):
                ends[event.id] = event
        return [(answer, ends[str(i)]) for i, answer in enumerate(answers)]

    def expect(self, asked: GenerationRequest) -> Answer:
        """Each alone, from nothing, without drafts; from now on drafts for it are known."""
        [(answer, end)] = self.plain.ask(replace(asked, cache_prompt=False))
        assert end.timings.draft_n == end.timings.cache_n == 0
        self.plain.core.forget_all()
        self.known.answers[asked.prompt] = answer
        return answer

    def check_drafts(self) -> None:
        counters = self.core.counters()
        assert 0 < counters.draft_tokens_accepted < counters.draft_tokens
        if self.known.wrong_at:
            assert set(self.known.wrong_at) == set(range(8))
            assert len(counters.accepted_per_position) == 7 and min(counters.accepted_per_position) > 0


@pytest.fixture(scope="module")
def natives() -> Iterator[list[NativeEngine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(build(SETTINGS)) for _ in range(2)]


@pytest.fixture(params=list(DRAFTS))
def engine(natives: list[NativeEngine], request: pytest.FixtureRequest) -> Engine:
    return Engine(natives[0], request.param, Engine(natives[1]))


def test_probabilities_of_verified_rows(engine: Engine) -> None:
    asked = [request(TEXT[:n], max_tokens=40) for n in (20, 21)]
    wanted = [engine.expect(each) for each in asked]
    got = engine.ask(*asked)
    assert [answer for answer, _ in got] == wanted
    assert all(probs is not None and len(probs.top) == 4 for answer in wanted for _, probs in answer)
    engine.check_drafts()


def test_cold_warm_and_moved_prefixes(engine: Engine) -> None:
    """A, B, A: B needs nearly all pages, so A's are on the host when it comes back. Then A goes on behind its answer,
    on pages and a state that verified rows left there."""
    other = request(OTHER[:100])
    wanted_other = engine.expect(other)
    for n in range(5, 60, 11):
        asked = request(TEXT[:n])
        wanted = engine.expect(asked)
        assert [engine.ask(asked)[0][0] for _ in range(2)] == [wanted, wanted]
        assert engine.ask(other)[0][0] == wanted_other
        [(answer, end)] = engine.ask(asked)
        assert answer == wanted and end.timings.cache_n == n - 1
        follow = request((*TEXT[:n], *(token for token, _ in answer), 7, 8))
        wanted = engine.expect(follow)
        [(answer, end)] = engine.ask(follow)
        assert answer == wanted and end.timings.cache_n >= n + 11
    counters = engine.core.counters()
    assert counters.swaps_in > 5 and counters.tokens_recomputed == 0
    engine.check_drafts()


def test_preempted_between_drafts(engine: Engine) -> None:
    """Two sequences in a pool that holds one."""
    asked = [request(TEXT[:5], max_tokens=-1), request(OTHER[:12], max_tokens=-1)]
    wanted = [engine.expect(each) for each in asked]
    assert [len(each) for each in wanted] == [123, 116]
    assert [answer for answer, _ in engine.ask(*asked)] == wanted
    counters = engine.core.counters()
    assert counters.preemptions > 0 and counters.swaps_in > 0 and counters.tokens_recomputed == 0
    engine.check_drafts()


def test_another_bit_would_be_noticed(natives: list[NativeEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are verified as they should, but the row of the last right one leaves no state."""
    engine = Engine(natives[0], "known", Engine(natives[1]))
    asked = request(TEXT[:20], max_tokens=40)
    wanted = engine.expect(asked)
    lose_states(monkeypatch)
    assert engine.ask(asked)[0][0] != wanted
