"""llama.cpp as tests ask for it: where it is not here, the test is skipped with the reason."""

from __future__ import annotations

import ctypes as C
from pathlib import Path

import pytest

from cli.llama_cpp import LlamaCppError, load_library
from tests.support.peer_sdist import PeerSourceError, peer_source


def library_or_skip() -> C.CDLL:
    """llama.cpp's library, of the xllamacpp wheel."""
    try:
        return load_library()
    except LlamaCppError as error:
        pytest.skip(str(error))


def source_or_skip() -> Path:
    """Root of llama.cpp's source tree."""
    try:
        return peer_source()
    except PeerSourceError as error:
        pytest.skip(str(error))
