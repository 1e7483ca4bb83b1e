"""A dense model in the whole engine: reuse to the token, drafts from the context, memory that is short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.dense_shapes import DENSE_PRESETS
from bench.make_synthetic_gguf import write_synthetic
from pyjet.engine.local import LocalEngine
from pyjet.engine.request import FinishedEvent, GenerationRequest, SamplingParams, TokenEvent, TokenProbs
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation_settings import SpeculationSettings

TEXT = tuple(7 + i * 37 % 300 for i in range(100))
LOOKUP = SpeculationSettings(lookup=True, lookup_min_match=2, adaptive=False)
Answer = list[tuple[int, "TokenProbs | None"]]  # equal only if the logits are


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> EngineSettings:
    path: Path = tmp_path_factory.mktemp("dense") / "llama.gguf"
    write_synthetic(path, DENSE_PRESETS["micro-llama"], type_name="Q8_0", pool_bytes=1 << 20)
    return EngineSettings(
        str(path), n_slots=2, n_ctx_slot=160, n_ctx_total=160, n_ubatch=24, page_tokens=16, n_threads=2
    )


@pytest.fixture(scope="module")
def fresh(settings: EngineSettings) -> Iterator[LocalEngine]:
    """It never reuses anything."""
    with LocalEngine.load(settings) as engine:
        yield engine


def ask(engine: LocalEngine, name: str, prompt: tuple[int, ...], **fields: object) -> tuple[Answer, FinishedEvent]:
    asked = GenerationRequest(name, prompt, SamplingParams(temperature=0.0), max_tokens=5, n_probs=4)
    events = list(engine.submit(replace(asked, **fields)))
    assert isinstance(events[-1], FinishedEvent)
    return [(e.token, e.probs) for e in events if isinstance(e, TokenEvent)], events[-1]


def test_prompts_that_part_anywhere(settings: EngineSettings, fresh: LocalEngine) -> None:
    with LocalEngine.load(settings) as engine:
        ask(engine, "first", TEXT)
        for n in (1, 15, 16, 17, 40, 63, 64, 99):
            prompt = (*TEXT[:n], 3, 4, 5)
            answer, end = ask(engine, f"parted-{n}", prompt)
            assert answer == ask(fresh, f"fresh-{n}", prompt, cache_prompt=False)[0]
            assert end.timings.cache_n == n
        assert engine.counters().swaps_in > 0, "the pool holds one of them"


def test_drafts_from_the_context(settings: EngineSettings, fresh: LocalEngine) -> None:
    """A prompt that repeats itself is drafted from; answers are those without drafts, to the bit of the logits."""
    prompt = TEXT[:12] * 4
    plain, _ = ask(fresh, "plain", prompt, max_tokens=60, cache_prompt=False)
    with LocalEngine.load(replace(settings, speculation=LOOKUP)) as engine:
        drafted, end = ask(engine, "drafted", prompt, max_tokens=60)
    assert drafted == plain
    assert end.timings.draft_n > 0
