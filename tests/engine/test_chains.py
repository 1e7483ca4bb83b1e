"""Chains of a request: who runs them, what they remember, and the probabilities that they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from pyjet.engine.candidates import Candidates
from pyjet.engine.request import DEFAULT_SAMPLERS, SamplingParams
from pyjet.engine.samplers.adaptive import AdaptiveP
from pyjet.engine.samplers.draw import draw as race
from pyjet.engine.samplers.mirostat import Mirostat
from pyjet.engine.sampling import Sampler, SamplingError
from tests.engine.test_sampling import LADDER, draw, reference_probs

NEUTRAL = {
    "dry_multiplier": 0.0, "top_n_sigma": 0.0, "xtc_probability": 0.0, "dynatemp_range": 0.0, "adaptive_target": -0.5,
    "typical_p": 1.0, "mirostat": 0,
}  # fmt: skip
ON_THE_HOST = [
    {"dry_multiplier": 0.5}, {"top_n_sigma": 1.0}, {"xtc_probability": 0.5}, {"dynatemp_range": 0.5},
    {"typical_p": 0.9}, {"mirostat": 1}, {"mirostat": 2}, {"adaptive_target": 0.5, "samplers": ("top_k", "adaptive_p")},
]  # fmt: skip


def test_neutral_samplers_leave_the_chain_to_the_device() -> None:
    everything = (*DEFAULT_SAMPLERS, "adaptive_p")
    device = Sampler(SamplingParams(**NEUTRAL, samplers=everything), 6).device_sample
    assert device is not None and device == Sampler(SamplingParams(), 6).device_sample
    for off in ({"dry_base": 0.5, "dry_multiplier": 1.0}, {"dry_penalty_last_n": 0, "dry_multiplier": 1.0},
                {"xtc_probability": 1.0, "xtc_threshold": 0.6}, {"adaptive_target": 0.5}):  # fmt: skip
        assert Sampler(SamplingParams(**off), 6).device_sample is not None


@pytest.mark.parametrize("fields", ON_THE_HOST)
def test_other_samplers_need_the_logits(fields: dict) -> None:
    sampler = Sampler(SamplingParams(**fields), 6)
    assert sampler.device_sample is None and not sampler.is_argmax


@pytest.mark.parametrize(
    ("fields", "greedy"),
    [
        ({"top_n_sigma": 1.0}, True),
        ({"mirostat": 2}, True),
        ({"adaptive_target": 0.5, "samplers": ("adaptive_p", "temperature")}, True),
        ({"xtc_probability": 1.0, "samplers": ("temperature", "xtc")}, True),
        ({"xtc_probability": 1.0}, False),
        ({"dry_multiplier": 1.0}, False),
        ({"dynatemp_range": 0.5}, False),
        ({"mirostat": 2, "dynatemp_range": 0.5}, True),  # mirostat's temperature is fixed
        ({"mirostat": 1, "typical_p": 0.5, "samplers": ("typ_p",)}, True),
    ],
)
def test_temperature_zero_is_greedy_where_nothing_drops_the_best(fields: dict, greedy: bool) -> None:
    params = SamplingParams(temperature=0.0, seed=1, **fields)
    assert Sampler(params, 6).is_argmax == greedy
    if greedy:
        assert Sampler(params, 6, n_probs=1).sample(LADDER)[0] == 0


def test_penalties_that_leave_no_number_are_an_error() -> None:
    for fields in ({"dry_multiplier": -3e38, "dry_base": 3e38, "dry_allowed_length": 0}, {"frequency_penalty": -3e38}):
        sampler = Sampler(SamplingParams(**fields), 6)
        sampler.accept_prompt((1, 1, 1, 1))
        with pytest.raises(SamplingError, match="penalties"):
            sampler.sample(LADDER)


def test_unknown_samplers_are_an_error() -> None:
    with pytest.raises(SamplingError, match="'bogus'"):
        Sampler(SamplingParams(samplers=("top_k", "bogus")), 6).sample(LADDER)


@pytest.mark.parametrize("fields", ON_THE_HOST)
def test_probabilities_after_any_chain(fields: dict) -> None:
    """They are what tokens are drawn by, and those of the model stay those of the model."""
    n = 4000
    counts: Counter[int] = Counter()
    sampler = Sampler(SamplingParams(seed=3, **fields), 6, n_probs=6, post_probs=True)
    if fields.get("xtc_probability") or fields.get("mirostat"):
        n = 1
    for index in range(n):
        sampler.index = index
        token, probs = sampler.sample(LADDER)
        assert probs is not None and sum(p for _, p in probs.top) == pytest.approx(1.0)
        assert dict(probs.top)[token] == probs.logprob
        assert [p for _, p in probs.top] == sorted((p for _, p in probs.top), reverse=True)
        counts[token] += 1
    if n > 1:
        for token, p in probs.top:
            assert abs(counts[token] / n - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-12
    raw = Sampler(SamplingParams(seed=3, **fields), 6, n_probs=6).sample(LADDER)[1]
    assert raw is not None and [p for _, p in raw.top] == pytest.approx(np.log(reference_probs(LADDER)).tolist())


@pytest.mark.parametrize(
    ("fields", "memory"),
    [
        ({"mirostat": 1, "mirostat_eta": 0.5}, lambda: Mirostat(1, 5.0, 0.5, 6)),
        ({"mirostat": 2, "mirostat_tau": 1.0}, lambda: Mirostat(2, 1.0, 0.1, 6)),
        ({"adaptive_target": 0.2, "samplers": ("adaptive_p", "temperature")}, lambda: AdaptiveP(0.2, 0.9)),
    ],
)
def test_a_chain_remembers_what_was_accepted(fields: dict, memory: Callable[[], Mirostat | AdaptiveP]) -> None:
    by_hand, tokens = memory(), []
    for index in range(60):
        candidates = Candidates(LADDER / np.float32(1.5))
        by_hand.apply(candidates)
        drawn, weights = race(candidates, 5, index)
        tokens.append(candidates.token(drawn))
        by_hand.note(tokens[-1], float(weights[drawn] / weights.sum(dtype=np.float64)))
        by_hand.accept(tokens[-1])
    assert draw(SamplingParams(seed=5, temperature=1.5, **fields), LADDER, 60) == tokens


def test_dry_sees_prompt_and_answer() -> None:
    logits = np.array([0.0, 3.0, 2.0, 1.0], np.float32)
    sampler = Sampler(SamplingParams(temperature=0.0, dry_multiplier=9.0, dry_allowed_length=1), 4)
    sampler.accept_prompt((0, 1))
    assert sampler.sample(logits)[0] == 1
    sampler.accept(0)  # 0 1 0: another 1 would repeat two tokens
    assert sampler.sample(logits)[0] == 2
    sampler.accept(2)
    assert sampler.sample(logits)[0] == 1
