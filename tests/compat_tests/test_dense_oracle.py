"""Small dense models with random weights against llama.cpp: kind of rope, biases, divisors, scale and tied output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.dense_shapes import DENSE_PRESETS
from bench.make_synthetic_gguf import write_synthetic
from cli.llama_cpp import LlamaModel
from compat_tests.kl.divergence import log_softmax
from compat_tests.kl.oracle import llama_logits
from compat_tests.kl.pyjet_logits import pyjet_logits
from pyjet.model.reader import Model, load_model
from tests.support.peer import library_or_skip

MODELS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "qwen3": ("micro-qwen3", None),
    "qwen3-256": ("micro-qwen3-256", None),
    "qwen2": ("micro-qwen2", None),
    "qwen2-plain": ("micro-qwen2", (".bias", "rope_freqs", ".output.weight")),
    "llama": ("micro-llama", None),
    "llama-plain": ("micro-llama", (".bias", "rope_freqs")),
    "llama-biased": ("micro-llama", (".output.weight",)),
}
N_TOKENS = 200
MEAN_KL = 2e-7  # nats; F16 weights and KV: 1e-8 to 5e-8. Rope of the wrong kind gives 3e-5 and more


@pytest.fixture(scope="module", params=MODELS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    preset, without = MODELS[request.param]
    path = tmp_path_factory.mktemp("dense") / f"{request.param}.gguf"
    hp = replace(DENSE_PRESETS[preset], n_vocab=600)
    write_synthetic(path, hp, type_name="F16", pool_bytes=1 << 20, without=without)
    yield path


def mean_kl(theirs: np.ndarray, ours: np.ndarray) -> float:
    p, q = log_softmax(theirs), log_softmax(ours)
    return float(np.mean(np.sum(np.exp(p) * (p - q), axis=1)))


def our_logits(model: Model, tokens: np.ndarray) -> np.ndarray:
    return next(iter(pyjet_logits(model, tokens, "f16", ["chunks of 512"]).values()))


def test_logits(file: Path) -> None:
    library_or_skip()
    model = load_model(file)
    tokens = np.random.default_rng(8).integers(0, 600, N_TOKENS).astype(np.int32)
    with LlamaModel(file) as llama:
        theirs = llama_logits(llama, tokens, "batch 512", "f16")
    ours = our_logits(model, tokens)
    assert mean_kl(theirs, ours) < MEAN_KL
    assert np.mean(theirs.argmax(axis=1) == ours.argmax(axis=1)) > 0.98
    # The measure sees a model of the other kind of rope.
    other = replace(model.hyperparams, arch="qwen2" if model.hyperparams.arch == "llama" else "llama")
    assert mean_kl(theirs, our_logits(replace(model, hyperparams=other), tokens)) > 100 * MEAN_KL
