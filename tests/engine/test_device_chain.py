"""The native chain against the host's: same token for the same noise, except next to a border."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pyjet.engine.device_chain import merged_biases
from pyjet.engine.request import SamplingParams
from pyjet.engine.sample_rows import SampleRows
from pyjet.engine.sampling import Sampler
from pyjet.native import MAX_CANDIDATES, MAX_SAMPLE_TOKENS, sample_row

NEAR = 1e-6
NEAR_TEMPERATURE = 1e-5  # relative
N_LARGE = 248_320
OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def on_device(sampler: Sampler, logits: np.ndarray) -> int:
    rows = SampleRows(1)
    n_of_each = rows.lay_out([(sampler, [])])
    rows.write_draws([(sampler, [])])
    return sample_row(logits, *(array[:n] for array, n in zip(rows.arrays, n_of_each)))


def on_host(params: SamplingParams, logits: np.ndarray, history: tuple[int, ...]) -> int:
    sampler = Sampler(params, len(logits))
    sampler.accept_prompt(history)
    return sampler.sample(logits)[0]


def near_tokens(params: SamplingParams, logits: np.ndarray, history: tuple[int, ...]) -> set[int]:
    """What the host chooses with a little more or less of everything: several tokens only next to a border."""
    shifts = (0.0, -1.0, 1.0)
    near = [replace(params, temperature=params.temperature * (1 + shift * NEAR_TEMPERATURE)) for shift in shifts]
    if params.top_p < 1.0:
        top_ps = [min(max(params.top_p + shift * NEAR, 0.0), 1 - 1e-9) for shift in shifts]
        near = [replace(each, top_p=top_p) for each in near for top_p in top_ps]
    return {on_host(each, logits, history) for each in near}


def random_params(rng: np.random.Generator, n_vocab: int) -> SamplingParams:
    def one_of(*values: float) -> float:
        return float(rng.choice(values))

    biased = rng.integers(0, n_vocab, rng.choice([0, 0, 4])).tolist()
    return SamplingParams(
        temperature=one_of(0.0, 0.2, 0.8, 1.0, 1.7),
        top_k=int(rng.choice([0, 1, 3, 40, 200, MAX_CANDIDATES, 1 << 30])),
        top_p=one_of(0.0, 0.4, 0.9, 0.95, 0.99, 1.0),
        min_p=one_of(0.0, 0.001, 0.05, 0.3, 1.0),
        repeat_penalty=one_of(1.0, 1.0, 1.2),
        frequency_penalty=one_of(0.0, 0.0, 0.3),
        presence_penalty=one_of(0.0, 0.0, 0.7),
        repeat_last_n=int(rng.choice([0, 5, 64])),
        logit_bias=tuple((token, one_of(-np.inf, -1.5, 2.0, 5.0)) for token in biased),
        min_keep=int(rng.choice([0, 0, 1, 7])),
        seed=int(rng.integers(1 << 31)),
    )


def random_logits(rng: np.random.Generator, n_vocab: int) -> np.ndarray:
    logits = rng.standard_normal(n_vocab) * rng.choice([0.5, 2.0, 4.0])
    if rng.random() < 0.3:
        logits = np.round(logits * 8) / 8  # ties
    return (logits + rng.choice([0.0, 15.0, -15.0])).astype(np.float32)


@pytest.mark.parametrize(
    ("n_vocab", "n_rows"), [(1, 30), (7, 400), (320, 1500), (2000, 700), (8000, 300), (N_LARGE, 25)]
)
def test_random_rows_and_parameters(n_vocab: int, n_rows: int) -> None:
    rng = np.random.default_rng(n_vocab)
    n_compared = n_near = n_unsettled = 0
    for _ in range(n_rows):
        params = random_params(rng, n_vocab)
        history = tuple(rng.integers(0, n_vocab, 20).tolist())
        logits = random_logits(rng, n_vocab)
        sampler = Sampler(params, n_vocab)
        sampler.accept_prompt(history)
        if sampler.device_sample is None:
            continue
        biased = logits.copy()
        biased[sampler.biases["token"]] += sampler.biases["bias"]
        token = on_device(sampler, logits)
        if token < 0:
            n_unsettled += 1
            assert n_vocab > MAX_CANDIDATES or not np.isfinite(biased.max())
            continue
        n_compared += 1
        if token != on_host(params, logits, history):
            n_near += 1
            assert token in near_tokens(params, logits, history), params
    assert n_compared > 0.5 * n_rows
    assert n_near <= 1 + 0.002 * n_rows
    assert n_unsettled < 0.25 * n_rows


def test_one_seed_gives_one_answer_wherever_its_tokens_are_chosen() -> None:
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((200, 3000)) * 2).astype(np.float32)
    params = SamplingParams(seed=11, repeat_penalty=1.3, repeat_last_n=32)
    answers = []
    for device_share in (0.0, 0.5, 1.0):
        sampler, answer = Sampler(params, 3000), []
        sampler.accept_prompt((1, 2, 3))
        for row in rows:
            device = rng.random() < device_share
            answer.append(on_device(sampler, row) if device else sampler.sample(row)[0])
            sampler.accept(answer[-1])
        answers.append(answer)
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) > 100


def test_distribution() -> None:
    """Chi-square of 60,000 draws from 9 of 12 tokens: above 26.1 (8 degrees of freedom) in one of a thousand."""
    logits = np.linspace(3.0, -1.0, 12).astype(np.float32)[[5, 2, 9, 0, 7, 11, 3, 1, 10, 8, 4, 6]]
    params = replace(OFF, seed=3, temperature=0.7, top_k=9)
    sampler, n = Sampler(params, 12), 60_000
    drawn = Counter()
    for _ in range(n):
        token = on_device(sampler, logits)
        drawn[token] += 1
        sampler.accept(token)
    left = np.sort(np.argsort(-logits)[:9])
    weights = np.exp(logits[left].astype(np.float64) / np.float32(0.7))
    expected = n * weights / weights.sum()
    assert set(drawn) <= set(left.tolist())
    counts = np.array([drawn[int(token)] for token in left])
    assert ((counts - expected) ** 2 / expected).sum() < 26.1


LADDER = np.array([2.0, 1.5, 1.0, 0.0, -1.0, -3.0], np.float32)


def set_of(params: SamplingParams, logits: np.ndarray, history: tuple[int, ...] = ()) -> set[int]:
    """All tokens that are drawn as one of the first 2,000 of an answer."""
    found = set()
    sampler = Sampler(replace(params, seed=1), len(logits))
    sampler.accept_prompt(history)
    for sampler.index in range(2000):
        found.add(on_device(sampler, logits))
    return found


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"top_k": 1}, {0}),
        ({"top_k": 3}, {0, 1, 2}),
        ({"top_k": MAX_CANDIDATES}, {0, 1, 2, 3, 4, 5}),
        ({"temperature": 0.0, "logit_bias": ((3, 1.0),)}, {0}),
        ({"top_p": 0.0}, {0}),
        ({"top_p": 0.7}, {0, 1}),
        ({"top_p": 0.7, "temperature": 5.0}, {0, 1}),  # top_p sees what is not tempered
        ({"min_p": 0.3}, {0, 1, 2}),
        ({"min_p": 1.0}, {0}),
        ({"min_p": 1.0, "min_keep": 4}, {0, 1, 2, 3}),
        ({"top_p": 0.0, "min_keep": 4}, {0, 1, 2, 3}),
        ({"top_p": 0.0, "min_keep": 4, "top_k": 2}, {0, 1}),
        ({"top_k": 3, "logit_bias": ((5, 5.0), (0, float("-inf")))}, {1, 2, 5}),
        ({"top_k": 1, "logit_bias": ((5, 2.0), (5, 4.0))}, {5}),
        ({"min_p": 0.9, "repeat_penalty": 100.0}, {2}),
        ({"min_p": 0.9, "presence_penalty": 1.2}, {2}),
        ({"min_p": 0.9, "frequency_penalty": 0.4}, {1, 2}),
    ],
)
def test_what_is_left(fields: dict, tokens: set[int]) -> None:
    params = replace(OFF, **fields)
    assert set_of(params, LADDER, (0, 0, 0, 1)) == tokens


def test_the_lowest_id_is_the_best_of_equals() -> None:
    logits = np.array([1, 3, 3, 0, 3, -0.0, 3], np.float32)
    assert set_of(replace(OFF, temperature=0.0, logit_bias=((0, 1.0),)), logits) == {1}
    assert set_of(replace(OFF, top_k=3), logits) == {1, 2, 4}
    assert set_of(replace(OFF, top_k=6), np.array([-0.0, 0, -0.0, 0, 0, 0, -0.0], np.float32)) == {0, 1, 2, 3, 4, 5}


FLAT = np.random.default_rng(2).standard_normal(50_000).astype(np.float32) * 0.01


@pytest.mark.parametrize(
    "params",
    [
        replace(OFF, top_p=0.99),
        replace(OFF, min_p=0.1),
        replace(OFF, top_k=1 << 30, min_p=0.1),
        replace(OFF, top_p=0.0, min_keep=2000),
    ],
)
def test_what_no_few_candidates_settle(params: SamplingParams) -> None:
    sampler = Sampler(params, len(FLAT))
    assert sampler.device_sample is not None
    assert on_device(sampler, FLAT) == -1
    token = sampler.sample(FLAT)[0]
    assert token == Sampler(replace(params, seed=sampler.seed), len(FLAT)).sample(FLAT)[0], "its noise is not used up"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_impossible_logits_are_left_to_the_host(value: float) -> None:
    logits = np.full(50, value, np.float32)
    assert on_device(Sampler(SamplingParams(), 50), logits) == -1
    logits[7] = 1.0
    assert on_device(Sampler(SamplingParams(), 50), logits) == (7 if value == float("-inf") else -1)


@pytest.mark.parametrize(
    ("fields", "runs"),
    [
        ({}, True),
        ({"samplers": ()}, False),
        ({"samplers": ("top_k", "temperature")}, True),
        ({"samplers": ("temperature", "top_k")}, False),
        ({"samplers": ("temperature", "top_k"), "temperature": 1.0}, True),  # what does nothing has no place
        ({"samplers": ("top_k", "top_k")}, False),
        ({"samplers": ("top_k", "entropy")}, False),
        ({"typical_p": 0.9}, False),
        ({"top_k": 0}, True),
        ({"top_k": 0, "top_p": 1.0}, True),
        ({"top_k": 0, "top_p": 1.0, "min_p": 0.0}, False),
        ({"top_k": MAX_CANDIDATES + 1}, False),
        ({"top_k": MAX_CANDIDATES + 1, "top_p": 1.0}, True),
        ({"top_k": MAX_CANDIDATES + 1, "top_p": 1.0, "min_p": 0.0}, False),
        ({"top_k": N_LARGE}, True),
        ({"repeat_penalty": 1.1}, True),
        ({"repeat_penalty": 1.1, "repeat_last_n": -1}, False),
        ({"repeat_penalty": 1.1, "repeat_last_n": MAX_SAMPLE_TOKENS}, True),
        ({"repeat_penalty": 1.1, "repeat_last_n": MAX_SAMPLE_TOKENS + 1}, False),
        ({"repeat_penalty": 1e300}, False),
        ({"presence_penalty": float("nan")}, False),
        ({"temperature": float("inf")}, False),
        ({"logit_bias": ((3, float("nan")),)}, False),
        ({"logit_bias": tuple((i, 1.0) for i in range(MAX_SAMPLE_TOKENS))}, True),
        ({"logit_bias": tuple((i, 1.0) for i in range(MAX_SAMPLE_TOKENS + 1))}, False),
        ({"min_keep": 1 << 40}, True),
        ({"temperature": 0.0, "logit_bias": ((3, 1.0),), "top_k": 0, "top_p": 1.0, "min_p": 0.0}, True),
    ],
)
def test_which_chains_the_device_runs(fields: dict, runs: bool) -> None:
    sampler = Sampler(SamplingParams(**fields), N_LARGE)
    assert (sampler.device_sample is not None) == runs
    assert Sampler(SamplingParams(**fields), N_LARGE, n_probs=1).device_sample is None
    if runs:
        on_device(sampler, np.zeros(N_LARGE, np.float32))  # every value is in its range


def test_biases_are_added_up_by_token() -> None:
    biases = merged_biases(((7, 1.0), (3, -np.inf), (7, 0.5), (-1, 1.0), (10, 1.0)), 10)
    assert biases.tolist() == [(3, -np.inf), (7, 1.5)]
    assert len(merged_biases((), 10)) == 0
