"""Prefixes of the embedded model: reused, moved to the host and back, shared while they are read. Bits never change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pyjet.assets import default_model_path
from pyjet.engine.local import LocalEngine
from pyjet.engine.request import FinishedEvent, GenerationRequest, SamplingParams, TokenEvent, TokenProbs
from pyjet.engine.settings import EngineSettings

PAGE = 16
SETTINGS = EngineSettings(
    str(default_model_path()),
    n_slots=2,
    n_ctx_slot=128,
    n_ctx_total=128,
    n_ubatch=24,
    page_tokens=PAGE,
    n_threads=2,
    kv_type_k="q8_0",
    kv_type_v="q8_0",
)
TEXT = tuple(200 + i * 37 % 3000 for i in range(120))
OTHER = tuple(reversed(TEXT))
Answer = list[tuple[int, "TokenProbs | None"]]  # equal only if the logits are


def ask(engine: LocalEngine, name: str, prompt: tuple[int, ...], **fields: object) -> tuple[Answer, FinishedEvent]:
    sampling = SamplingParams(seed=len(prompt))
    asked = GenerationRequest(name, prompt, sampling, max_tokens=5, n_probs=4)
    events = list(engine.submit(replace(asked, **fields)))
    assert isinstance(events[-1], FinishedEvent)
    return [(e.token, e.probs) for e in events if isinstance(e, TokenEvent)], events[-1]


@pytest.fixture(scope="module")
def fresh() -> Iterator[LocalEngine]:
    """It never reuses anything."""
    with LocalEngine.load(SETTINGS) as engine:
        yield engine


def test_every_length_cold_warm_and_moved(fresh: LocalEngine) -> None:
    """A, B, A: B needs nearly all pages, so A's are on the host when it comes back. All remainders of page, chunk."""
    with LocalEngine.load(SETTINGS) as engine:
        for n in range(1, 2 * 24 + PAGE):
            wanted, _ = ask(fresh, f"fresh-{n}", TEXT[:n], cache_prompt=False)
            for name in ("cold", "warm"):
                assert ask(engine, f"{name}-{n}", TEXT[:n])[0] == wanted
            ask(engine, f"other-{n}", OTHER)
            answer, end = ask(engine, f"moved-{n}", TEXT[:n])
            assert answer == wanted
            assert end.timings.cache_n == n - 1
        counters = engine.counters()
        assert counters.swaps_in > 40 and counters.tokens_recomputed == 0


def test_a_conversation_goes_on_from_every_place(fresh: LocalEngine) -> None:
    """Its next turn, another one in its stead, and one that drops what was said."""
    with LocalEngine.load(SETTINGS) as engine:
        first, _ = ask(engine, "first", TEXT[:50], boundaries=(0, 20, 45))
        said = tuple(token for token, _ in first)
        for i, prompt in enumerate(
            [(*TEXT[:50], *said, 7, 8, 9), (*TEXT[:50], *said, 9, 8), (*TEXT[:45], 3, 4, 5), TEXT[:50], TEXT[:21]]
        ):
            answer, end = ask(engine, f"then-{i}", prompt)
            assert answer == ask(fresh, f"fresh-then-{i}", prompt, cache_prompt=False)[0]
            assert end.timings.cache_n >= (54, 54, 45, 45, 0)[i]


def test_what_comes_together_is_read_once(fresh: LocalEngine) -> None:
    many = replace(SETTINGS, n_slots=4, n_ctx_total=1024)
    prompts = [(*TEXT[:90], 50 + i, 60 + i, 70) for i in range(4)]
    with LocalEngine.load(many) as engine:
        asked = [
            GenerationRequest(str(i), p, SamplingParams(seed=len(p)), max_tokens=5, n_probs=4)
            for i, p in enumerate(prompts)
        ]
        streams = [engine.submit(one) for one in asked]
        ends, answers = [], []
        for stream in streams:
            events = list(stream)
            ends.append(events[-1])
            answers.append([(e.token, e.probs) for e in events if isinstance(e, TokenEvent)])
    assert sorted(end.timings.prompt_n for end in ends) == [3, 3, 3, 93]
    for i, prompt in enumerate(prompts):
        assert answers[i] == ask(fresh, f"fresh-{i}", prompt, cache_prompt=False)[0]
