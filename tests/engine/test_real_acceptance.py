"""How many drafts of the embedded model's MTP block are right in answers at several temperatures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pyjet.assets import default_model_path
from pyjet.engine.core import EngineCore
from pyjet.engine.request import FinishedEvent, GenerationRequest, SamplingParams
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.native.engine import NativeEngine
from tests.engine.real_engine import build
from tests.server.real import has_library
from tests.server.scripted import ids

pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")

TEMPERATURES = (0.0, 0.3, 0.7, 1.0)
PROMPTS = (
    "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import json\n\n\ndef load(path):\n    with open(path) as file:\n",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
)
SETTINGS = EngineSettings(
    str(default_model_path()), n_slots=4, n_ctx_slot=256, n_ctx_total=1024, n_ubatch=64, n_threads=2, calibrate=False,
    speculation=SpeculationSettings(mtp=True, n_max=1, adaptive=False),
)  # fmt: skip


@pytest.fixture(scope="module")
def native() -> Iterator[NativeEngine]:
    with build(SETTINGS) as engine:
        yield engine


def share_right(native: NativeEngine, temperature: float, sampling: str) -> float:
    """Of the drafts for the next token but one, in 60 tokens for each prompt and two seeds."""
    speculation = replace(SETTINGS.speculation, sampling=sampling)  # type: ignore[arg-type]
    core = EngineCore(replace(SETTINGS, speculation=speculation).limits(native.n_vocab), native)
    for seed in (1, 2):
        for i, prompt in enumerate(PROMPTS):
            how = SamplingParams(temperature=temperature, seed=seed)
            core.submit(GenerationRequest(f"{seed}-{i}", tuple(ids(prompt)), how, max_tokens=60))
    finished: list[FinishedEvent] = []
    while core.has_work:
        started, batch = core.begin()
        assert batch is not None
        events = started + core.finish(native.step(batch))
        finished += [event for event in events if isinstance(event, FinishedEvent)]
    drafted = sum(event.timings.draft_n for event in finished)
    assert drafted > 200
    return sum(event.timings.draft_n_accepted for event in finished) / drafted


@pytest.mark.parametrize("sampling", ["greedy", "probabilistic"])
def test_the_share_of_right_drafts_falls_smoothly_with_the_temperature(native: NativeEngine, sampling: str) -> None:
    shares = [share_right(native, temperature, sampling) for temperature in TEMPERATURES]
    assert min(shares) > 0.4, shares
    for cooler, hotter in itertools.pairwise(shares):
        assert hotter > 0.7 * cooler, f"it collapses: {shares}"
        assert hotter < cooler + 0.1, f"it grows with the temperature: {shares}"
