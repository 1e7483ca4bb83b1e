"""The samplers that narrow and reshape, against straightforward references in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.candidates import Candidates
from pyjet.engine.noise import XTC_STREAM, exponentials, uniform
from pyjet.engine.samplers.adaptive import AdaptiveP
from pyjet.engine.samplers.mirostat import Mirostat, zipf_rank
from pyjet.engine.samplers.tempering import dynamic_temperature, temperature
from pyjet.engine.samplers.truncation import top_k, top_n_sigma, typical
from pyjet.engine.samplers.xtc import xtc

LOGITS = st.lists(st.integers(-40, 40).map(lambda x: x / 8), min_size=1, max_size=60).map(
    lambda values: np.array(values, np.float32)
)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return weights / weights.sum()


def kept(candidates: Candidates) -> list[int]:
    return [candidates.token(i) for i in range(len(candidates))]


@given(LOGITS, st.sampled_from([0.3, 1.0, 2.0]))
def test_top_n_sigma(logits: np.ndarray, n: float) -> None:
    candidates = Candidates(logits)
    top_n_sigma(candidates, n)
    mean = sum(map(float, logits)) / len(logits)
    deviation = math.sqrt(sum((float(x) - mean) ** 2 for x in logits) / len(logits))
    assert len(candidates) == len(logits)
    for before, after in zip(logits, candidates.logits):
        bound = float(logits.max()) - n * deviation
        if abs(before - bound) > 1e-4:
            assert after == (before if before > bound or len(logits) == 1 else -np.inf)


def test_impossible_candidates_do_not_widen_top_n_sigma() -> None:
    candidates = Candidates(np.array([3.0, -np.inf, 1.0, -1.0], np.float32))
    top_n_sigma(candidates, 1.0)  # the deviation of 3, 1, -1 is 1.63
    assert candidates.logits.tolist() == [3.0, -np.inf, -np.inf, -np.inf]


@given(LOGITS, st.sampled_from([0.02, 0.1, 0.3, 0.5]), st.integers(0, 5), st.booleans())
def test_xtc(logits: np.ndarray, threshold: float, min_keep: int, is_sorted: bool) -> None:
    candidates = Candidates(logits)
    if is_sorted:
        top_k(candidates, len(logits))
    xtc(candidates, 1.0, threshold, min_keep, seed=1, index=0)
    probs = softmax(logits)
    if any(abs(p - threshold) < 1e-6 for p in probs):
        return
    likely = sorted((i for i in range(len(logits)) if probs[i] > threshold), key=lambda i: (-logits[i], i))
    dropped = set(likely[:-1]) if len(logits) - len(likely[:-1]) >= min_keep else set()
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i)) if is_sorted else range(len(logits))
    assert kept(candidates) == [i for i in order if i not in dropped]


def test_xtc_happens_as_often_as_asked_and_depends_on_seed_and_index_only() -> None:
    def drops(probability: float, seed: int, index: int) -> bool:
        candidates = Candidates(np.array([2.0, 2.0, -9.0], np.float32))
        xtc(candidates, probability, 0.1, 0, seed, index)
        return len(candidates) == 2

    for probability in (0.1, 0.5, 0.9):
        happened = [drops(probability, 7, index) for index in range(4000)]
        assert abs(np.mean(happened) - probability) < 4 * math.sqrt(probability * (1 - probability) / 4000)
        assert happened == [drops(probability, 7, index) for index in range(4000)]
        assert happened != [drops(probability, 8, index) for index in range(4000)]


def test_chance_is_independent_of_the_noise_of_tokens() -> None:
    chances = np.array([uniform(3, index, XTC_STREAM) for index in range(4000)])
    noise = np.array([np.exp(-exponentials(3, index, np.arange(2))) for index in range(4000)])
    assert abs(np.corrcoef(chances, noise[:, 0])[0, 1]) < 4 / math.sqrt(4000)
    assert abs(np.corrcoef(chances, noise[:, 1])[0, 1]) < 4 / math.sqrt(4000)
    assert 0 <= chances.min() < 0.01 and 0.99 < chances.max() < 1


@given(LOGITS, st.sampled_from([0.0, 0.5, 1.0, 1.5]), st.sampled_from([0.2, 1.0, 3.0]), st.sampled_from([0.5, 1, 2]))
def test_dynamic_temperature(logits: np.ndarray, t: float, spread: float, exponent: float) -> None:
    candidates = Candidates(logits)
    dynamic_temperature(candidates, t, spread, exponent)
    if len(logits) == 1:
        assert (candidates.logits == logits).all()
        return
    probs = softmax(logits)
    share = -sum(p * math.log(p) for p in probs if p > 0) / math.log(len(logits))
    low = max(0.0, t - spread)
    tempered = low + (t + spread - low) * min(1.0, share) ** exponent
    np.testing.assert_allclose(candidates.logits, logits / tempered, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("t", [1e-38, 1e-45, 3e38])
def test_extreme_temperatures_leave_the_best(t: float) -> None:
    candidates = Candidates(np.array([5.0, 7.0, -np.inf, -80.0], np.float32))
    temperature(candidates, t)
    assert candidates.logits.argmax() == 1 and np.isfinite(candidates.logits.max())
    assert candidates.logits[2] == -np.inf


@pytest.mark.parametrize("exponent", [-3.0, 0.0, 1e30, -1e30])
def test_any_exponent_gives_numbers(exponent: float) -> None:
    for logits in ([1.0, 1.0, 1.0], [90.0, -90.0, -np.inf], [1.0, 2.0, 3.0]):
        candidates = Candidates(np.array(logits, np.float32))
        dynamic_temperature(candidates, 1.0, 3.4e38, exponent)
        assert not np.isnan(candidates.logits).any() and np.isfinite(candidates.logits.max())


@given(LOGITS, st.sampled_from([0.2, 1.5, 5.0]))
def test_second_mirostat(logits: np.ndarray, tau: float) -> None:
    """In the same order as before, whatever that is; the surprise let through follows that of accepted tokens."""
    mirostat, mu = Mirostat(2, tau, 0.3, len(logits)), 2 * tau
    for _ in range(3):
        candidates = Candidates(logits)
        mirostat.apply(candidates)
        surprise = -np.log2(softmax(logits))
        if (abs(surprise - mu) < 1e-4).any():
            return
        wanted = [i for i in range(len(logits)) if surprise[i] < mu] or [int(logits.argmax())]
        assert kept(candidates) == wanted
        token = kept(candidates)[-1]
        probability = float(softmax(candidates.logits)[-1])
        mirostat.note(token, probability)
        mirostat.accept(token)
        mu -= 0.3 * (-math.log2(probability) - tau)
        assert mirostat.mu == pytest.approx(mu)


def test_first_mirostat_follows_zipfs_law() -> None:
    """Where probabilities are those of the law, the last rank let through is the one with that surprise."""
    for s in (1.2, 1.5, 2.0):
        ranks = np.arange(1, 5001)
        logits = (-s * np.log(ranks)).astype(np.float32)
        total = (1 - 5000.0 ** (1 - s)) / (s - 1)  # the paper's integral for the sum
        for mu in (3.0, 6.0, 9.0):
            rank = zipf_rank(logits[:100], mu, 5000, 5000)
            surprise, next_surprise = (s * math.log2(i) + math.log2(total) for i in (rank, rank + 1))
            assert surprise < mu + 0.001 and next_surprise > mu - 0.001
            candidates = Candidates(logits)
            mirostat = Mirostat(1, mu / 2, 0.1, 5000)
            mirostat.apply(candidates)
            assert len(candidates) == rank


@pytest.mark.parametrize("logits", [[0.0], [2.0, 2.0, 2.0], [1.0, -np.inf], [9.0, -np.inf, -np.inf, 8.0]])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [0.0, -50.0, 1e38])
def test_mirostat_always_leaves_a_possible_candidate(logits: list[float], version: int, tau: float) -> None:
    candidates = Candidates(np.array(logits, np.float32))
    Mirostat(version, tau, 0.1, 4).apply(candidates)
    assert len(candidates) and np.isfinite(candidates.logits.max())


@given(LOGITS, st.sampled_from([0.0, 0.4, 1.0]), st.sampled_from([0.0, 0.5, 0.99]))
def test_adaptive_p(logits: np.ndarray, target: float, decay: float) -> None:
    sampler = AdaptiveP(target, decay)
    total, weight = target / (1 - decay), 1 / (1 - decay)
    probs = softmax(logits)
    for step in range(4):
        candidates = Candidates(logits)
        sampler.apply(candidates)
        aim = min(max(2 * target - total / weight, 0.0), 1.0)
        distance = np.abs(probs - aim) / 0.3
        np.testing.assert_allclose(candidates.logits, 5 - 10 * distance**2 / (1 + distance), rtol=1e-3, atol=1e-4)
        token = step % len(logits)
        sampler.note(token, 0.123)
        sampler.accept(token)
        total, weight = probs[token] + decay * total, 1 + decay * weight


def test_adaptive_p_knows_narrowed_candidates_and_leaves_impossible_ones() -> None:
    candidates = Candidates(np.array([1.0, 4.0, -np.inf, 3.0], np.float32))
    top_k(candidates, 4)
    sampler = AdaptiveP(0.5, 0.0)
    sampler.apply(candidates)
    assert kept(candidates) == [1, 3, 0, 2] and candidates.logits[3] == -np.inf
    sampler.note(3, 0.9)
    sampler.accept(3)
    again = Candidates(np.array([1.0, 4.0, -np.inf, 3.0], np.float32))
    sampler.apply(again)
    aim = 2 * 0.5 - softmax(np.array([4.0, 3.0, 1.0]))[1]
    distance = abs(softmax(np.array([4.0, 3.0, 1.0]))[0] - aim) / 0.3
    assert again.logits[1] == pytest.approx(5 - 10 * distance**2 / (1 + distance), abs=1e-4)


@pytest.mark.parametrize("memory", [Mirostat(2, 3.0, 0.5, 5), AdaptiveP(0.4, 0.5)])
def test_only_accepted_tokens_are_remembered(memory: Mirostat | AdaptiveP) -> None:
    def outcome() -> list[float]:
        candidates = Candidates(np.array([1.0, 0.5, 0.0, -1.0, -3.0], np.float32))
        memory.apply(candidates)
        return candidates.logits.tolist()

    before = outcome()
    memory.note(2, 0.01)
    memory.note(1, 0.5)
    memory.accept(2)  # another one than was drawn last, as drafts by lot are
    assert outcome() == before
    memory.note(4, 1e-9)
    memory.accept(4)
    assert outcome() != before


@pytest.mark.parametrize("p", [0.01, 0.3, 0.95, 0.999999, 1.0 - 1e-12])
@pytest.mark.parametrize("width", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("min_keep", [0, 5_000])
def test_typical_of_a_large_vocabulary(p: float, width: float, min_keep: int) -> None:
    logits = (np.random.default_rng(3).standard_normal(20_000) * width).astype(np.float32)
    probs = softmax(logits)
    distance = np.abs(-np.log(probs) - float(-(probs * np.log(probs)).sum()))
    candidates = Candidates(logits)
    typical(candidates, p, min_keep)
    inside = np.zeros(len(logits), bool)
    inside[kept(candidates)] = True
    assert inside.sum() == len(candidates) >= max(1, min_keep)
    if not inside.all():
        assert distance[inside].max() < distance[~inside].min() + 1e-5
    # Its probabilities are float32.
    assert probs[inside].sum() > p - 1e-5
    if len(candidates) > max(1, min_keep):
        assert probs[inside].sum() - probs[np.argmax(np.where(inside, distance, -1))] < p + 1e-5
