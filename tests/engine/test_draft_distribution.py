"""Answers with drawn drafts have the distribution of those without: a chi-square test of two samples.

Their seeds have nothing in common, so what is compared is distributions and not draws. Samples are continuations of
three tokens; a model that forgets all before every third one gives many of them in one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pyjet.engine.candidates import softmax
from pyjet.engine.chosen import Chosen, ChosenTokens
from pyjet.engine.core import EngineCore
from pyjet.engine.request import Event, SamplingParams, TokenEvent
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation_settings import NO_SPECULATION, SpeculationSettings
from tests.engine.broken_verifiers import accept_wrong_drafts
from tests.engine.core_run import request
from tests.engine.fake_native import LIMITS
from tests.engine.short_memory import TEMPERATURE, ShortMemory
from tests.support import chi_square

SPAN, N_VOCAB, PROMPT = 3, 12, (1, 2, 3)
N_SAMPLES, N_BROKEN = 20_000, 3_000  # with a fault that must be seen fewer are enough
N_EACH = 12  # samples in an answer
SAMPLING = SamplingParams(temperature=TEMPERATURE, top_p=0.95, top_k=0)
DRAWN = SpeculationSettings(mtp=True, n_max=3, sampling="probabilistic", adaptive=False)
SIZES = replace(
    LIMITS, n_slots=8, n_ctx_slot=48, n_ctx_total=8 * 48, page_tokens=16, n_vocab=N_VOCAB, max_rows=64, max_spec=7,
    host_bytes=0, max_checkpoints=0,
)  # fmt: skip


class Samples:
    """``counts`` int[N_VOCAB ** SPAN] of each continuation; ``share``: of the drafts so many were right."""

    def __init__(self, n: int, drafts: SpeculationSettings, first_seed: int) -> None:
        limits = replace(SIZES, speculation=drafts)
        native = ShortMemory(limits, SPAN)
        core = EngineCore(limits, native)
        events: list[Event] = []
        for i in range(-(-n // N_EACH)):
            sampling = replace(SAMPLING, seed=first_seed + i)
            asked = request(str(i), PROMPT, sampling=sampling, max_tokens=N_EACH * SPAN, cache_prompt=False)
            events += core.submit(asked)
        while core.has_work:
            started, batch = core.begin()
            assert batch is not None
            events += started + core.finish(native.step(batch))
        self.counts = count_continuations(events)
        assert self.counts.sum() >= n and np.count_nonzero(self.counts) > 100
        counters = core.counters()
        self.share = counters.draft_tokens_accepted / max(1, counters.draft_tokens)


def count_continuations(events: list[Event]) -> np.ndarray:
    answers: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, TokenEvent):
            answers.setdefault(event.id, []).append(event.token)
    triples = np.array(list(answers.values())).reshape(-1, SPAN)
    return np.bincount(triples @ N_VOCAB ** np.arange(SPAN), minlength=N_VOCAB**SPAN)


@pytest.fixture(scope="module")
def plain() -> Samples:
    return Samples(N_SAMPLES, NO_SPECULATION, first_seed=1)


def test_distribution_with_drawn_drafts(plain: Samples) -> None:
    drafted = Samples(N_SAMPLES, DRAWN, first_seed=1_000_001)
    assert plain.share == 0.0 and 0.3 < drafted.share < 0.9
    assert chi_square.p_value_of_two(plain.counts, drafted.counts) > 0.01


def takes_what_is_likely(_: ChosenTokens, sequence: Sequence, i: int, chosen: Chosen) -> bool:
    """A draft that the model thinks a bit likely."""
    history = sequence.tokens[: sequence.n_tokens].tolist()
    probabilities = softmax(ShortMemory(SIZES, SPAN)._logits(history) / np.float32(TEMPERATURE))
    return bool(probabilities[sequence.verifying[i]] > 0.05)


def by_lot(share: float) -> Callable[..., bool]:
    rng = np.random.default_rng(5)
    return lambda *_: bool(rng.random() < share)


@pytest.mark.parametrize("is_taken", [takes_what_is_likely, by_lot(0.5)], ids=["likely ones", "by lot"])
def test_a_verifier_that_takes_wrong_drafts_would_be_noticed(
    plain: Samples, monkeypatch: pytest.MonkeyPatch, is_taken: Callable[..., bool]
) -> None:
    accept_wrong_drafts(monkeypatch, is_taken)
    broken = Samples(N_BROKEN, DRAWN, first_seed=2_000_001)
    assert chi_square.p_value_of_two(plain.counts, broken.counts) < 1e-4


def test_the_test_is_calibrated() -> None:
    """Of samples from one distribution, one twice as large as the other, p is below x in a share x of all pairs."""
    rng = np.random.default_rng(6)
    probs = rng.dirichlet(np.full(200, 0.3))
    pairs = [(rng.multinomial(3000, probs), rng.multinomial(6000, probs)) for _ in range(500)]
    p_values = np.array([chi_square.p_value_of_two(a, b) for a, b in pairs])
    for x in (0.05, 0.2, 0.5, 0.8):
        assert abs((p_values < x).mean() - x) < 4 * np.sqrt(x * (1 - x) / len(p_values))
