"""Models that the tests of pyjet.model share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.make_synthetic_gguf import PRESETS, write_synthetic
from pyjet.assets import default_model_path
from pyjet.model import Model, Tokenizer, load_model


@pytest.fixture(scope="session")
def micro_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete model of 1 MB with random weights."""
    path = tmp_path_factory.mktemp("micro") / "micro.gguf"
    write_synthetic(path, PRESETS["micro"], chat_template="{{ messages }}", pool_bytes=1 << 18)
    return path


@pytest.fixture(scope="session")
def tiny() -> Model:
    return load_model(default_model_path())


@pytest.fixture(scope="session")
def tokenizer(tiny: Model) -> Iterator[Tokenizer]:
    yield Tokenizer.from_metadata(tiny.metadata)
