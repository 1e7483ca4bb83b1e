"""Memory of results lives as long as an array that shows it, whatever happens to the engine."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

from pyjet.assets import default_model_path
from pyjet.model.reader import load_model
from pyjet.native import EngineConfig, NativeEngine, NativeError
from pyjet.native.host_memory import host_rows
from pyjet.native.library import load_library
from tests.support.native_steps import Part, make_batch


class CountingLibrary:
    """libpyjet with the frees counted."""

    def __init__(self) -> None:
        library = load_library()
        self.pj_host_alloc, self.pj_last_error = library.pj_host_alloc, library.pj_last_error
        self._free = library.pj_host_free
        self.n_freed = 0

    def pj_host_free(self, device: int, memory: ctypes.c_void_p) -> None:
        self.n_freed += 1
        self._free(device, memory)


def test_the_last_view_frees() -> None:
    library = CountingLibrary()
    rows = host_rows(library, 0, 4, 100)  # type: ignore[arg-type]
    rows[:] = 1
    view = rows[1:3]
    del rows
    gc.collect()
    assert library.n_freed == 0 and view.sum() == 200
    del view
    gc.collect()
    assert library.n_freed == 1


def test_results_outlive_the_engine() -> None:
    with NativeEngine(load_model(default_model_path()), EngineConfig(2, 1, max_rows=8)) as engine:
        logits = engine.step(make_batch(Part([1, 2, 3, 4]))).logits
        expected = logits.copy()
    gc.collect()
    assert np.array_equal(logits, expected)


def test_a_device_that_is_not_there() -> None:
    if load_library().pj_device_count(1) == 0:
        with pytest.raises(NativeError):
            host_rows(load_library(), 1, 1, 1)
