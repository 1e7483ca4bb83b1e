"""Sampling on a GPU: the tests of tests/native/test_sampling.py, whose expected tokens the CPU chooses.

And a vocabulary of the size that models have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from bench.make_synthetic_gguf import PRESETS, write_synthetic
from pyjet.model.reader import load_model
from pyjet.native import ROW_LOGITS, NativeEngine
from tests.native.cuda.conftest import cuda_config
from tests.native.test_late_masks import WAITED, made_late
from tests.native.test_sampling import *  # noqa: F403
from tests.native.test_sampling import expected_tokens, masked, sampled, short_sequences, tokens_of_banned_logits

N_LARGE = 248_320


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeEngine]:
    """An engine with random weights and a large vocabulary."""
    path = tmp_path_factory.mktemp("large") / "large.gguf"
    hp = replace(PRESETS["tiny"], n_vocab=N_LARGE)
    write_synthetic(path, hp, type_name="Q8_0", seed=1, pool_bytes=1 << 20)
    sizes = {"n_pages": 40, "n_state_slots": 40, "page_tokens": 16, "max_rows": 80, "max_spec": 1}
    with NativeEngine(load_model(path), cuda_config(**sizes)) as engine:
        yield engine


@pytest.mark.parametrize("n_seqs", [1, 4, 40])
def test_a_large_vocabulary(large: NativeEngine, n_seqs: int) -> None:
    for seed in range(6):
        batch = sampled(short_sequences(n_seqs), np.random.default_rng(seed))
        result = large.step(batch)
        assert result.sampled.tolist() == expected_tokens(batch, result.logits)


@pytest.mark.parametrize("n_seqs", [1, 4, 40])
def test_masks_of_a_large_vocabulary(large: NativeEngine, n_seqs: int) -> None:
    for seed in range(4):
        batch, allowed = masked(short_sequences(n_seqs), np.random.default_rng(seed), N_LARGE)
        result = large.step(batch)
        expected = tokens_of_banned_logits(batch, result.logits, allowed)
        assert result.sampled.tolist() == expected
        for seconds in (0.0, WAITED):
            assert large.step(made_late(batch, seconds)).sampled.tolist() == expected


def test_steps_without_samples_leave_the_op_out(large: NativeEngine) -> None:
    plain = large.step(short_sequences(4, ROW_LOGITS)).logits.copy()
    batch = sampled(short_sequences(4), np.random.default_rng(1))
    assert np.array_equal(large.step(batch).logits, plain)
    assert np.array_equal(large.step(short_sequences(4, ROW_LOGITS)).logits, plain)
