"""The sampler chain against straightforward references, and the distributions it draws from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine import candidates
from pyjet.engine.candidates import Candidates
from pyjet.engine.request import SamplingParams
from pyjet.engine.samplers import truncation
from pyjet.engine.samplers.penalties import penalties
from pyjet.engine.sampling import Sampler, SamplingError
from pyjet.native.top_k import top_indices

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}
LOGITS = st.lists(st.integers(-12, 12).map(lambda x: x / 2), min_size=1, max_size=60).map(
    lambda values: np.array(values, np.float32)
)


def reference_order(logits: np.ndarray) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def reference_probs(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return weights / weights.sum()


def kept(candidates: Candidates) -> set[int]:
    return {candidates.token(i) for i in range(len(candidates))}


def narrowed(logits: np.ndarray, *first: int) -> Candidates:
    """Candidates of all tokens, or sorted and cut to the best ones."""
    candidates = Candidates(logits)
    for k in first:
        truncation.top_k(candidates, k)
    return candidates


@given(LOGITS, st.integers(1, 70))
def test_top_k(logits: np.ndarray, k: int) -> None:
    candidates = narrowed(logits, k)
    assert [candidates.token(i) for i in range(len(candidates))] == reference_order(logits)[:k]


@given(LOGITS, st.sampled_from([0.0, 0.3, 0.5, 0.9, 0.999]), st.integers(0, 8), st.sampled_from([(), (50,)]))
def test_top_p(logits: np.ndarray, p: float, min_keep: int, first: tuple[int, ...]) -> None:
    candidates = narrowed(logits, *first)
    order = reference_order(logits)[: len(candidates)]
    probs = reference_probs(logits[order])
    total, n = 0.0, 0
    while n < len(order) and (total < p - 1e-6 or n < max(1, min_keep)):
        total += probs[n]
        n += 1
    truncation.top_p(candidates, p, min_keep)
    assert abs(len(candidates) - n) <= (abs(total - p) < 1e-5)
    assert kept(candidates) == set(order[: len(candidates)])


@given(LOGITS, st.sampled_from([0.01, 0.05, 0.5, 1.0]), st.integers(0, 8), st.sampled_from([(), (50,)]))
def test_min_p(logits: np.ndarray, p: float, min_keep: int, first: tuple[int, ...]) -> None:
    candidates = narrowed(logits, *first)
    order = reference_order(logits)[: len(candidates)]
    bound = np.float32(logits.max() + np.float32(np.log(p)))
    n = max(sum(bool(logits[i] >= bound) for i in order), min_keep, 1)
    truncation.min_p(candidates, p, min_keep)
    assert kept(candidates) == set(order[:n])


@given(LOGITS, st.sampled_from([0.1, 0.5, 0.95]), st.integers(0, 4))
def test_typical(logits: np.ndarray, p: float, min_keep: int) -> None:
    candidates = Candidates(logits)
    truncation.typical(candidates, p, min_keep)
    probs = reference_probs(logits)
    surprise = -np.log(probs)
    distance = np.abs(surprise - float((probs * surprise).sum()))
    inside = kept(candidates)
    outside = set(range(len(logits))) - inside
    assert len(inside) >= min(len(logits), max(1, min_keep))
    assert not outside or max(distance[list(inside)]) <= min(distance[list(outside)]) + 1e-5
    farthest = max(inside, key=lambda i: distance[i])
    if len(inside) > max(1, min_keep):
        assert sum(probs[i] for i in inside) - probs[farthest] <= p + 1e-5
    assert not outside or sum(probs[list(inside)]) > p - 1e-5


def test_typical_survives_impossible_tokens() -> None:
    candidates = Candidates(np.array([1.0, -np.inf, 0.5], np.float32))
    truncation.typical(candidates, 0.99, 0)
    assert kept(candidates) == {0, 2}


@given(LOGITS, st.lists(st.integers(0, 59), max_size=30), st.sampled_from([(), (10,)]))
def test_penalties(logits: np.ndarray, history: list[int], first: tuple[int, ...]) -> None:
    candidates = narrowed(logits, *first)
    before = {candidates.token(i): candidates.logits[i] for i in range(len(candidates))}
    counts = Counter(token for token in history if token < len(logits))
    penalties(candidates, counts, 1.5, 0.25, 0.5)
    for i in range(len(candidates)):
        token = candidates.token(i)
        value = before[token]
        if n := history.count(token):
            value = (value * 1.5 if value <= 0 else value / 1.5) - (n * 0.25 + 0.5)
        assert candidates.logits[i] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("p", [0.3, 0.95, 0.999999, 1.0 - 1e-12])
@pytest.mark.parametrize("width", [0.01, 1.0, 5.0])
def test_top_p_of_a_large_vocabulary(p: float, width: float) -> None:
    """The nucleus of flat distributions is far larger than what is looked at first."""
    logits = (np.random.default_rng(3).standard_normal(50_000) * width).astype(np.float32)
    logits[7] = -np.inf
    probs = np.exp(logits.astype(np.float64) - logits.max())
    order = np.argsort(-logits, kind="stable")
    total = np.cumsum(probs[order] / probs.sum())
    candidates = Candidates(logits)
    truncation.top_p(candidates, p, 1)
    n = len(candidates)
    assert [candidates.token(i) for i in range(n)] == order[:n].tolist()
    # Its probabilities are float32.
    assert total[n - 1] > p - 1e-5
    assert n == 1 or total[n - 2] < p + 1e-5


def draw(params: SamplingParams, logits: np.ndarray, n: int = 1) -> list[int]:
    """An answer of ``n`` tokens whose logits are always the same."""
    sampler = Sampler(params, len(logits))
    tokens = []
    for _ in range(n):
        tokens.append(sampler.sample(logits)[0])
        sampler.accept(tokens[-1])
    return tokens


LADDER = np.array([2.0, 1.5, 1.0, 0.0, -1.0, -3.0], np.float32)


@pytest.mark.parametrize(
    ("fields", "expect"),
    [
        ({}, reference_probs(LADDER)),
        ({"temperature": 0.5}, reference_probs(LADDER * 2)),
        ({"temperature": 2.0}, reference_probs(LADDER / 2)),
        ({"top_k": 2}, np.append(reference_probs(LADDER[:2]), np.zeros(4))),
        ({"top_p": 0.7}, np.append(reference_probs(LADDER[:2]), np.zeros(4))),
        ({"min_p": 0.3}, np.append(reference_probs(LADDER[:3]), np.zeros(3))),
        # The default order tempers last: top_p sees the untempered distribution.
        ({"top_p": 0.7, "temperature": 100.0}, np.append(reference_probs(LADDER[:2] / 100), np.zeros(4))),
        ({"logit_bias": ((5, 5.0),)}, reference_probs(LADDER + np.array([0, 0, 0, 0, 0, 5]))),
        ({"logit_bias": ((0, float("-inf")),)}, np.append(0.0, reference_probs(LADDER[1:]))),
    ],
)
def test_distribution(fields: dict, expect: np.ndarray) -> None:
    n = 20_000
    drawn = draw(SamplingParams(**{**OFF, "seed": 7, **fields}), LADDER, n)
    counts = np.bincount(drawn, minlength=6)
    assert counts[expect == 0].sum() == 0
    error = np.abs(counts / n - expect)
    assert (error <= 4.5 * np.sqrt(expect * (1 - expect) / n) + 1e-12).all()


def test_order_of_samplers_matters() -> None:
    tempered_first = SamplingParams(**{**OFF, "top_p": 0.7, "temperature": 100.0}, samplers=("temperature", "top_p"))
    assert set(draw(tempered_first, LADDER, 500)) == {0, 1, 2, 3, 4}
    without = SamplingParams(**{**OFF, "temperature": 0.0}, samplers=("top_k",), seed=3)
    assert len(set(draw(without, LADDER, 500))) > 2
    assert not Sampler(without, 6).is_argmax


def test_greedy() -> None:
    params = SamplingParams(temperature=0.0)
    assert Sampler(params, 6).is_argmax
    assert draw(params, np.array([0, 3, 1, 3, 2, 0], np.float32)) == [1]
    assert draw(SamplingParams(temperature=0.0, logit_bias=((4, 2.0),)), np.array([0, 3, 1, 3, 2, 0], np.float32)) == [
        4
    ]
    assert not Sampler(SamplingParams(temperature=0.0, logit_bias=((4, 2.0),)), 6).is_argmax
    assert not Sampler(SamplingParams(temperature=0.0, repeat_penalty=1.1), 6).is_argmax
    assert not Sampler(SamplingParams(temperature=0.0, typical_p=0.5), 6).is_argmax
    assert Sampler(SamplingParams(temperature=0.0, repeat_penalty=1.1, repeat_last_n=0), 6).is_argmax


def test_penalties_look_at_the_last_tokens_of_prompt_and_answer() -> None:
    params = SamplingParams(temperature=0.0, presence_penalty=10.0, repeat_last_n=2)
    sampler = Sampler(params, 6)
    sampler.accept_prompt((0, 1, 2, 0))
    assert sampler.sample(LADDER)[0] == 1  # 2 and 0 are in the window, 1 is not
    sampler.accept(1)
    assert sampler.sample(LADDER)[0] == 2
    sampler.accept(2)
    assert sampler.sample(LADDER)[0] == 0


PENALISED = [{"repeat_penalty": 1.1}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.1}]


@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.lists(st.integers(0, 5), max_size=12),
    st.lists(st.integers(0, 5), max_size=7),
    st.sampled_from([-1, 1, 2, 5, 64]),
    st.sampled_from(PENALISED),
)
def test_counts_after_drafts(
    prompt: list[int], answer: list[int], drafts: list[int], last_n: int, fields: dict[str, float]
) -> None:
    """They are what accepting the drafts would give, and nothing is accepted."""
    sampler, other = (Sampler(SamplingParams(repeat_last_n=last_n, **fields), 6) for _ in range(2))
    for each in (sampler, other):
        each.accept_prompt(tuple(prompt))
        for token in answer:
            each.accept(token)
    before = sampler.counts_after(())
    ahead = sampler.counts_after(drafts)
    for token in drafts:
        other.accept(token)
    after = other.counts_after([])
    assert before is not None and ahead is not None and after is not None
    assert ahead.tolist() == after.tolist() == sorted(Counter(window(prompt + answer + drafts, last_n)).items())
    assert before.tolist() == sorted(Counter(window(prompt + answer, last_n)).items())
    assert sampler.counts_after(()).tolist() == before.tolist() and sampler.index == len(answer)


def window(tokens: list[int], last_n: int) -> list[int]:
    return tokens[-last_n:] if last_n > 0 else tokens


def test_no_penalties_no_counts() -> None:
    for params in (SamplingParams(), SamplingParams(repeat_penalty=1.5, repeat_last_n=0)):
        assert Sampler(params, 6).counts_after((1, 2)) is None


def test_a_token_is_the_same_until_one_is_accepted() -> None:
    params = SamplingParams(seed=5, temperature=5.0)
    sampler = Sampler(params, 6)
    first = [sampler.sample(LADDER)[0] for _ in range(50)]
    assert len(set(first)) == 1 and (sampler.seed, sampler.index) == (5, 0)
    tokens = draw(params, LADDER, 50)
    for index in range(10):
        sampler.index = index
        assert sampler.sample(LADDER)[0] == tokens[index]


def test_same_seed_same_tokens_and_random_seeds_differ() -> None:
    params = SamplingParams(seed=5, temperature=2.0)
    assert draw(params, LADDER, 50) == draw(params, LADDER, 50)
    assert draw(params, LADDER, 50) != draw(SamplingParams(seed=6, temperature=2.0), LADDER, 50)
    assert draw(SamplingParams(temperature=2.0), LADDER, 50) != draw(SamplingParams(temperature=2.0), LADDER, 50)


def test_input_is_never_changed() -> None:
    logits = LADDER.copy()
    params = SamplingParams(seed=1, logit_bias=((1, 2.0),), repeat_penalty=1.2)
    sampler = Sampler(params, 6, n_probs=3)
    sampler.accept_prompt((0, 1))
    sampler.sample(logits)
    assert (logits == LADDER).all()


def test_raw_probabilities_ignore_biases_and_samplers() -> None:
    params = SamplingParams(temperature=0.0, logit_bias=((5, 50.0),))
    token, probs = Sampler(params, 6, n_probs=2).sample(LADDER)
    expect = np.log(reference_probs(LADDER))
    assert token == 5 and probs is not None
    assert probs.logprob == pytest.approx(expect[5], abs=1e-5)
    assert [i for i, _ in probs.top] == [0, 1]
    assert [p for _, p in probs.top] == pytest.approx(expect[:2].tolist(), abs=1e-5)


def test_probabilities_after_sampling() -> None:
    params = SamplingParams(**{**OFF, "top_k": 2, "seed": 1})
    token, probs = Sampler(params, 6, n_probs=4, post_probs=True).sample(LADDER)
    expect = reference_probs(LADDER[:2])
    assert probs is not None and [i for i, _ in probs.top] == [0, 1]
    assert [p for _, p in probs.top] == pytest.approx(expect.tolist())
    assert probs.logprob == pytest.approx(expect[token])
    greedy = Sampler(SamplingParams(temperature=0.0), 6, n_probs=4, post_probs=True).sample(LADDER)
    assert greedy[1] is not None and greedy[1].top == ((0, 1.0),)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_impossible_logits_are_an_error(value: float) -> None:
    with pytest.raises(SamplingError):
        Sampler(SamplingParams(), 3).sample(np.full(3, value, np.float32))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=1),
        SamplingParams(seed=1, top_k=0),
        SamplingParams(seed=1, top_k=0, top_p=1.0),
        SamplingParams(seed=1, top_k=0, top_p=1.0, min_p=0.0),
        SamplingParams(seed=1, top_k=0, top_p=1.0, min_p=0.0, typical_p=0.5),
    ],
)
def test_a_large_vocabulary_is_not_sorted(params: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take many times as long as all the rest of a chain."""
    logits = (np.random.default_rng(0).standard_normal(248_320) * 3).astype(np.float32)
    sizes = [0]

    def counting(sort: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def counted(values: np.ndarray, *args: object, **options: object) -> np.ndarray:
            sizes.append(len(values))
            return sort(values, *args, **options)

        return counted

    for name in ("sort", "argsort", "partition", "argpartition"):
        monkeypatch.setattr(np, name, counting(getattr(np, name)))

    def best(values: np.ndarray, k: int) -> np.ndarray:
        sizes.append(min(k, len(values)))
        return top_indices(values, k)

    monkeypatch.setattr(candidates, "top_indices", best)
    Sampler(params, len(logits)).sample(logits)
    assert max(sizes) < len(logits) / 8
