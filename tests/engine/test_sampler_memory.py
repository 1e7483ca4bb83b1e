"""What samplers with feedback remember crosses from one request of an answer to the next."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pyjet.engine.local import LocalEngine
from pyjet.engine.request import GenerationRequest, SamplingParams, TokenEvent
from pyjet.engine.sampling import Sampler
from tests.engine.core_run import request
from tests.engine.fake_native import LIMITS, FakeNative

N_VOCAB, N_TOKENS = 300, 24
CHAINS = {
    "mirostat 1": SamplingParams(seed=3, mirostat=1, mirostat_tau=2.0, mirostat_eta=0.7),
    "mirostat 2": SamplingParams(seed=3, mirostat=2, mirostat_tau=2.0, mirostat_eta=0.7),
    "adaptive_p": SamplingParams(seed=3, adaptive_target=0.4, samplers=("adaptive_p",)),
}


@pytest.fixture(params=CHAINS)
def params(request: pytest.FixtureRequest) -> SamplingParams:
    return CHAINS[request.param]


def answer(sampler: Sampler, rows: np.ndarray) -> list[int]:
    tokens = []
    for row in rows:
        tokens.append(sampler.sample(row)[0])
        sampler.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("n", [1, 9])
def test_a_sampler_goes_on_where_another_one_was(params: SamplingParams, n: int) -> None:
    rows = np.random.default_rng(1).normal(0, 2.5, (N_TOKENS, N_VOCAB)).astype(np.float32)
    whole = answer(Sampler(params, N_VOCAB), rows)
    first = Sampler(params, N_VOCAB)
    assert answer(first, rows[:n]) == whole[:n]
    assert answer(Sampler(params, N_VOCAB, index=n, memory=first.memory), rows[n:]) == whole[n:]
    if n > 1:
        assert answer(Sampler(params, N_VOCAB, index=n), rows[n:]) != whole[n:]


def test_others_remember_nothing() -> None:
    assert Sampler(SamplingParams(seed=1), N_VOCAB).memory == ()


def events(asked: GenerationRequest) -> list[TokenEvent]:
    with LocalEngine(FakeNative(), LIMITS) as engine:
        return [event for event in engine.submit(asked) if isinstance(event, TokenEvent)]


def test_each_token_comes_with_the_memory_behind_it(params: SamplingParams) -> None:
    asked = request("whole", sampling=params, max_tokens=12)
    whole = events(asked)
    assert len({event.memory for event in whole}) > 6
    for n in (1, 5):
        told = pickle.loads(pickle.dumps(whole[n - 1]))
        rest = request(
            "rest", prompt=(*asked.prompt, *(event.token for event in whole[:n])), sampling=params,
            max_tokens=12 - n, n_before=n, memory=told.memory,
        )  # fmt: skip
        assert [(event.token, event.memory) for event in events(rest)] == [(e.token, e.memory) for e in whole[n:]]


def test_tokens_of_other_chains_have_none() -> None:
    assert {event.memory for event in events(request("plain", max_tokens=5))} == {()}
