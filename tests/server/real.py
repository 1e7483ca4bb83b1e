"""pyjet-tiny with the real engine, for tests of the whole way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyjet.assets import default_model_path
from pyjet.engine.local import LocalEngine
from pyjet.engine.settings import EngineSettings
from pyjet.native.library import NativeError, library_path
from pyjet.server.options import ServerOptions
from pyjet.server.service import Service
from tests.server.scripted import tiny_model, tiny_template, tiny_tokenizer


def has_library() -> bool:
    try:
        library_path()
    except NativeError:
        return False
    return True


@contextmanager
def tiny_engine(**more: Any) -> Iterator[LocalEngine]:
    """Four slots of 2,048 tokens."""
    settings = EngineSettings(str(default_model_path()), n_ctx_slot=2048, n_ctx_total=4 * 2048, n_threads=2, **more)
    engine = LocalEngine.load(settings)
    try:
        yield engine
    finally:
        engine.close()


def tiny_service(engine: LocalEngine, **options: Any) -> Service:
    return Service(tiny_model(), tiny_tokenizer(), tiny_template(), engine, ServerOptions(**options), model_id="tiny")
