"""Models of the native tests, written once per session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bench.make_synthetic_gguf import PRESETS, write_synthetic
from pyjet.assets import default_model_path
from pyjet.model.reader import Model, load_model
from pyjet.native import NativeEngine
from tests.native.checked_step import CONFIG, good_batch
from tests.support.native_steps import same_bits
from tests.support.requantize import requantize

MakeModel = Callable[..., Model]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """tiny_model(type_name): pyjet-tiny, "Q4_K_M" as shipped or requantised."""
    folder = tmp_path_factory.mktemp("tiny")

    @cache
    def make(type_name: str = "Q4_K_M") -> Model:
        if type_name == "Q4_K_M":
            return load_model(default_model_path())
        return load_model(requantize(default_model_path(), folder / f"{type_name}.gguf", type_name))

    return make


@pytest.fixture(scope="session")
def synthetic_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """synthetic_model(preset, type_name): random weights; the vocabulary is cut to 2,048 tokens.

    seed and without as in write_synthetic.
    """
    folder = tmp_path_factory.mktemp("synthetic")

    @cache
    def make(preset: str, type_name: str, seed: int = 1, without: tuple[str, ...] | None = None) -> Model:
        hp = PRESETS[preset]
        path = folder / f"{preset}-{type_name}-{seed}-{'-'.join(without or ())}.gguf"
        hp = replace(hp, n_vocab=min(hp.n_vocab, 2048))
        write_synthetic(path, hp, type_name=type_name, seed=seed, pool_bytes=1 << 20, without=without)
        return load_model(path)

    return make


# A small engine for the tests of errors, which look after each one whether it still works.


@pytest.fixture(scope="module")
def model(synthetic_model: MakeModel) -> Model:
    return synthetic_model("micro", "Q8_0")


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[NativeEngine]:
    with NativeEngine(model, CONFIG) as engine:
        yield engine


@pytest.fixture(scope="module")
def healthy(engine: NativeEngine) -> Callable[[], None]:
    """A check that the engine computes what it computed before any error."""

    def run() -> np.ndarray:
        engine.state_reset(1)
        engine.pages_write([1], np.zeros((1, engine.page_bytes), np.uint8))
        return engine.step(good_batch()).logits.copy()

    first = run()

    def check() -> None:
        assert same_bits(run(), first)

    return check
