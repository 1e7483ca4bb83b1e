"""Sampling of large vocabularies goes by the largest logits of runs of 32 to 256 ids: the tokens are those of the CPU,
which looks at all logits, also when the largest ones are changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from bench.make_synthetic_gguf import PRESETS, write_synthetic
from pyjet.model.reader import load_model
from pyjet.native import (
    BIAS_DTYPE,
    COUNT_DTYPE,
    ROW_ARGMAX,
    ROW_LOGITS,
    ROW_SAMPLE,
    SAMPLE_DTYPE,
    NativeEngine,
    StepBatch,
)
from tests.native.cuda.conftest import cuda_config
from tests.native.test_sampling import expected_tokens, sampled, short_sequences

N_SEQS = 40  # more than the logits of one launch
RUNS = {65_536: 32, 65_600: 64, 152_064: 128, 262_208: 256}


@pytest.fixture(scope="module", params=RUNS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeEngine]:
    path = tmp_path_factory.mktemp("maxima") / "model.gguf"
    write_synthetic(path, replace(PRESETS["tiny"], n_vocab=request.param), type_name="Q8_0", seed=1, pool_bytes=1 << 20)
    sizes = {"n_pages": 40, "n_state_slots": 40, "page_tokens": 16, "max_rows": 80, "max_spec": 1}
    with NativeEngine(load_model(path), cuda_config(**sizes)) as engine:
        yield engine
    path.unlink()


def some_samples(rng: np.random.Generator, n: int) -> np.ndarray:
    """Samples that change no logit, from the best token to all that a chain looks at."""
    samples = np.zeros(n, SAMPLE_DTYPE)
    samples["seed"] = rng.integers(1 << 62, size=n)
    samples["top_p"] = rng.choice([0.9, 0.99, 1.0], n)
    samples["min_p"] = rng.choice([0.0, 0.02, 0.3], n)
    samples["temperature"] = rng.choice([0.0, 0.5, 1.0, 2.0], n)
    samples["repeat_penalty"] = 1.0
    samples["top_k"] = rng.choice([0, 1, 2, 40, 500, 1000, 1024], n)
    samples["mask_begin"] = -1
    return samples


def changing(batch: StepBatch, best: np.ndarray, n_vocab: int, rng: np.random.Generator) -> StepBatch:
    """The batch with samples that penalise each row's best tokens and raise or ban these and their neighbours.

    ``best``: int[rows, 300].
    """
    samples = some_samples(rng, len(best))
    counts: list[tuple[int, int]] = []
    biases: list[tuple[int, float]] = []
    for sample, of_row in zip(samples, best):
        penalised = np.sort(of_row[: rng.choice([0, 1, 64, 200, 300])])
        near = rng.choice(of_row, 20) + rng.choice([-1, 0, 1, 33], 20)
        raised = np.unique(np.clip(near, 0, n_vocab - 1))[: rng.choice([0, 1, 20])]
        sample["presence_penalty"] = rng.choice([-1.0, 0.1, 3.0])
        sample["count_begin"], sample["n_counts"] = len(counts), len(penalised)
        sample["bias_begin"], sample["n_biases"] = len(biases), len(raised)
        counts += [(int(token), int(rng.integers(1, 4))) for token in penalised]
        biases += [(int(token), float(rng.choice([-np.inf, 0.2, 5.0]))) for token in raised]
    return replace(batch, samples=samples, counts=np.array(counts, COUNT_DTYPE), biases=np.array(biases, BIAS_DTYPE))


def test_samples_of_every_kind(engine: NativeEngine) -> None:
    for seed in range(3):
        batch = sampled(short_sequences(N_SEQS), np.random.default_rng(seed))
        result = engine.step(batch)
        assert result.sampled.tolist() == expected_tokens(batch, result.logits)


def test_unchanged_logits(engine: NativeEngine) -> None:
    for seed in range(3):
        batch = short_sequences(N_SEQS)
        samples = some_samples(np.random.default_rng(seed), len(batch.tokens))
        batch = replace(batch, samples=samples)
        result = engine.step(batch)
        assert result.sampled.tolist() == expected_tokens(batch, result.logits)


def test_changed_maxima(engine: NativeEngine) -> None:
    logits = engine.step(short_sequences(N_SEQS, ROW_LOGITS)).logits.copy()
    best = np.array([np.argsort(-row)[:300] for row in logits])
    for seed in range(5):
        batch = changing(short_sequences(N_SEQS), best, logits.shape[1], np.random.default_rng(seed))
        result = engine.step(batch)
        assert np.array_equal(result.logits, logits)
        assert result.sampled.tolist() == expected_tokens(batch, result.logits)


def test_the_best_token_alone(engine: NativeEngine) -> None:
    """Greedy rows whose logits nothing changes get the token that ROW_ARGMAX gives."""
    batch = short_sequences(N_SEQS, ROW_LOGITS | ROW_SAMPLE | ROW_ARGMAX)
    samples = some_samples(np.random.default_rng(1), len(batch.tokens))
    samples["top_k"] = 1
    result = engine.step(replace(batch, samples=samples))
    assert result.sampled.tolist() == result.argmax.tolist() == np.argmax(result.logits, axis=1).tolist()


def test_an_infinite_bias_is_left_to_the_host(engine: NativeEngine) -> None:
    batch = short_sequences(1, ROW_SAMPLE)
    samples = some_samples(np.random.default_rng(1), len(batch.tokens))
    samples["n_biases"] = 1
    biases = np.array([(9, np.inf)], BIAS_DTYPE)
    assert engine.step(replace(batch, samples=samples, biases=biases)).sampled.tolist() == [-1]
