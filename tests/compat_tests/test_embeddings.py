"""Embeddings of pyjet-tiny are llama.cpp's, for every pooling."""

from __future__ import annotations

import numpy as np
import pytest

from cli.llama_cpp import LlamaContext, LlamaModel
from pyjet.assets import default_model_path
from pyjet.engine.request import EmbeddingEvent, GenerationRequest, Pooling
from tests.server.real import has_library, tiny_engine
from tests.server.scripted import tiny_tokenizer
from tests.support.peer import library_or_skip

POOLINGS: tuple[Pooling, ...] = ("none", "mean", "cls", "last")
pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
TEXT = "def fibonacci(n: int) -> int:\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n" * 2
TOKENS = np.array(tiny_tokenizer().encode(TEXT), np.int32)


def far(a: np.ndarray, b: np.ndarray) -> float:
    """The largest distance of the directions of two rows, as 1 - cosine."""
    return float(1 - ((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


def of_llama_cpp(model: LlamaModel, pooling: Pooling, at_once: int) -> np.ndarray:
    """Its embedding; by calls of ``at_once`` tokens, which select other kernels, with pooling "none" only."""
    with LlamaContext(model, len(TOKENS), n_threads=1, pooling=pooling) as context:
        return np.concatenate([context.embed(TOKENS[i : i + at_once]) for i in range(0, len(TOKENS), at_once)])


def test_the_same_directions_and_lengths() -> None:
    """As near to llama.cpp's as these are to those that it computes token by token."""
    library_or_skip()
    with LlamaModel(default_model_path()) as model:
        theirs = {pooling: of_llama_cpp(model, pooling, len(TOKENS)) for pooling in POOLINGS}
        single = of_llama_cpp(model, "none", 1)
    ours = {}
    with tiny_engine() as engine:
        for pooling in POOLINGS:
            events = engine.submit(GenerationRequest("a", tuple(TOKENS.tolist()), pooling=pooling))
            ours[pooling] = np.concatenate([event.rows for event in events if isinstance(event, EmbeddingEvent)])
    for pooling in POOLINGS:
        assert ours[pooling].shape == theirs[pooling].shape
        lengths = [np.linalg.norm(rows[pooling], axis=1) for rows in (ours, theirs)]
        np.testing.assert_allclose(*lengths, rtol=0.01)
        assert far(ours[pooling], theirs[pooling]) < 1.5 * far(theirs["none"], single) < 1e-3
    assert far(ours["mean"], theirs["mean"]) < 1e-4 and len(ours["none"]) == len(TOKENS)
