"""The model that ships with the package."""

from __future__ import annotations

from pathlib import Path


def default_model_path() -> Path:
    """Path of the embedded model, pyjet-tiny in Q4_K_M (Apache-2.0, 22 MB)."""
    return Path(__file__).with_name("pyjet-tiny-Q4_K_M.gguf")
