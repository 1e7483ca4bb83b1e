"""Models of the native tests, written once per session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from bench.make_synthetic_gguf import PRESETS, write_synthetic
from pyjet.assets import default_model_path
from pyjet.model.reader import Model, load_model
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
