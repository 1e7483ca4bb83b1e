"""Draws by race: the exact distribution over seeds and over the tokens of an answer, independent of each other, and
mostly the same for similar distributions. By the host and by the library."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from pyjet.engine.candidates import Candidates
from pyjet.engine.noise import exponentials
from pyjet.engine.samplers.draw import draw as race_draw
from pyjet.native import SAMPLE_DTYPE, sample_row
from pyjet.native.samples import no_biases, no_counts
from tests.support import chi_square

N_DRAWS = 20_000
LOGITS = np.array([1.0, -0.5, 2.0, 0.0, 1.5, -1.0, 0.5], np.float32)
SAMPLE, NO_COUNTS, NO_BIASES = np.zeros(1, SAMPLE_DTYPE), no_counts(), no_biases()
Draw = Callable[[np.ndarray, int, int], int]


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64))
    return weights / weights.sum()


def by_host(logits: np.ndarray, seed: int, index: int) -> int:
    return race_draw(Candidates(logits), seed, index)[0]


def by_library(logits: np.ndarray, seed: int, index: int) -> int:
    SAMPLE[0] = (seed, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, len(logits), 0, 0, 0, 0, 0, index, 0)
    return sample_row(logits, SAMPLE, NO_COUNTS, NO_BIASES)


def over_tokens(draw: Draw, logits: np.ndarray, seed: int = 11) -> Iterable[int]:
    return (draw(logits, seed, index) for index in range(N_DRAWS))


def over_seeds(draw: Draw, logits: np.ndarray, index: int = 3) -> Iterable[int]:
    return (draw(logits, seed, index) for seed in range(N_DRAWS))


def over_wide_seeds(draw: Draw, logits: np.ndarray) -> Iterable[int]:
    seeds = np.random.default_rng(4).integers(0, 1 << 64, N_DRAWS, np.uint64, endpoint=False)
    return (draw(logits, int(seed), 0) for seed in seeds)


SERIES = [over_tokens, over_seeds, over_wide_seeds]


@pytest.mark.parametrize("draw", [by_host, by_library])
@pytest.mark.parametrize("series", SERIES)
def test_distribution(draw: Draw, series: Callable[[Draw, np.ndarray], Iterable[int]]) -> None:
    counts = np.bincount(list(series(draw, LOGITS)), minlength=len(LOGITS))
    assert chi_square.fits(counts, softmax(LOGITS))


@pytest.mark.parametrize("series", SERIES)
def test_a_slightly_biased_draw_would_be_noticed(series: Callable[[Draw, np.ndarray], Iterable[int]]) -> None:
    biased = LOGITS.copy()
    biased[4] += 0.1
    counts = np.bincount(list(series(by_library, biased)), minlength=len(LOGITS))
    assert not chi_square.fits(counts, softmax(LOGITS))


def test_noise_that_is_not_exponential_would_be_noticed() -> None:
    def with_uniform_noise(logits: np.ndarray, seed: int, index: int) -> int:
        u = np.random.default_rng([seed, index]).random(len(logits))
        return int(((1 - u) / softmax(logits)).argmin())

    counts = np.bincount(list(over_tokens(with_uniform_noise, LOGITS)), minlength=len(LOGITS))
    assert not chi_square.fits(counts, softmax(LOGITS))


@pytest.mark.parametrize(
    "neighbour", [(0, 1), (1, 0), (1, -1)], ids=["next token", "next seed", "next seed, token before"]
)
def test_neighbours_are_independent(neighbour: tuple[int, int]) -> None:
    n = len(LOGITS)
    counts = np.zeros((n, n), int)
    for i in range(N_DRAWS):
        seed, index = 2 * (i % 200), 1 + 2 * (i // 200)
        other = by_library(LOGITS, seed + neighbour[0], index + neighbour[1])
        counts[by_library(LOGITS, seed, index), other] += 1
    probs = softmax(LOGITS)
    assert chi_square.fits(counts, np.outer(probs, probs))


def test_dependent_neighbours_would_be_noticed() -> None:
    n = len(LOGITS)
    counts = np.zeros((n, n), int)
    for index in range(N_DRAWS):
        first = by_library(LOGITS, 1, index)
        second = first if index % 20 == 0 else by_library(LOGITS, 2, index)
        counts[first, second] += 1
    probs = softmax(LOGITS)
    assert not chi_square.fits(counts, np.outer(probs, probs))


def test_host_and_library_draw_alike() -> None:
    rng = np.random.default_rng(6)
    n_different = 0
    for index in range(3000):
        logits = (rng.standard_normal(rng.integers(1, 900)) * 3).astype(np.float32)
        seed = int(rng.integers(1 << 63))
        n_different += by_host(logits, seed, index) != by_library(logits, seed, index)
    assert n_different == 0


def test_the_order_of_candidates_does_not_matter() -> None:
    rng = np.random.default_rng(7)
    logits = rng.standard_normal(50).astype(np.float32)
    for index in range(200):
        shuffled = Candidates(logits)
        shuffled.keep(rng.permutation(50), is_sorted=False)
        assert shuffled.token(race_draw(shuffled, 5, index)[0]) == by_host(logits, 5, index)


def test_an_impossible_token_is_never_drawn() -> None:
    logits = np.array([-np.inf, 0.0, -np.inf, -200.0], np.float32)
    assert {draw(logits, 1, index) for draw in (by_host, by_library) for index in range(2000)} == {1}


@pytest.mark.parametrize("scale", [0.1, 0.5, 2.0])
def test_similar_distributions_mostly_agree(scale: float) -> None:
    """At least (1 - TV) / (1 + TV) of the draws (Daliri, Musco, Suresh 2024), and no more than the optimum 1 - TV."""
    rng = np.random.default_rng(8)
    target = (rng.standard_normal(40) * 1.5).astype(np.float32)
    draft = target + (rng.standard_normal(40) * scale).astype(np.float32)
    n_equal = sum(by_library(target, 9, index) == by_library(draft, 9, index) for index in range(N_DRAWS))
    distance = 0.5 * np.abs(softmax(target) - softmax(draft)).sum()
    error = 3 * np.sqrt(0.25 / N_DRAWS)
    assert (1 - distance) / (1 + distance) - error < n_equal / N_DRAWS < 1 - distance + error
    n_apart = sum(by_library(target, 9, index) == by_library(draft, 10, index) for index in range(N_DRAWS))
    assert abs(n_apart / N_DRAWS - (softmax(target) * softmax(draft)).sum()) < error


def test_contenders_of_a_vocabulary_are_enough() -> None:
    """The first arrival of all, for peaked, ordinary and flat distributions, some of them mostly impossible."""
    rng = np.random.default_rng(9)
    for index in range(60):
        logits = (rng.standard_normal(50_000) * rng.choice([0.0, 0.1, 2.0, 8.0])).astype(np.float32)
        if index % 3 == 0:
            logits[rng.random(len(logits)) < 0.999] = -np.inf
        weights = np.exp(logits - logits.max())
        with np.errstate(divide="ignore"):
            first = int((exponentials(3, index, np.arange(len(logits))) / weights).argmin())
        assert by_host(logits, 3, index) == first


def test_the_best_of_mostly_impossible_candidates() -> None:
    rng = np.random.default_rng(10)
    logits = np.full(10_000, -np.inf, np.float32)
    logits[rng.integers(0, len(logits), 7)] = [3, 1, 2, 2, 0, 5, 5]
    order = np.argsort(-logits, kind="stable")
    for k in (3, 7, 40, 9_999, 10_000, 20_000):
        assert Candidates(logits).best(k).tolist() == order[:k].tolist()
