"""The native engine of tests with a real model; cores come and go on it."""

from __future__ import annotations

from pyjet.engine.build import build_native
from pyjet.engine.settings import EngineSettings
from pyjet.native.engine import NativeEngine


def build(settings: EngineSettings) -> NativeEngine:
    """Loaded and packed; whoever builds it closes it."""
    engine, _ = build_native(settings, lambda *_: None)
    assert isinstance(engine, NativeEngine)
    return engine
