"""Arrays in host memory that a device copies to fast."""

from __future__ import annotations

import ctypes as C
import weakref

import numpy as np

from pyjet.native.config import ERR_MEMORY
from pyjet.native.library import NativeError
from pyjet.native.step import Float32Array


def host_rows(lib: C.CDLL, device: int, n_rows: int, width: int) -> Float32Array:
    """float32[n_rows, width], uninitialised; freed with the last array that uses it, not with an engine."""
    n = n_rows * width
    memory = lib.pj_host_alloc(device, n * C.sizeof(C.c_float))
    if not memory:
        raise NativeError(ERR_MEMORY, lib.pj_last_error().decode("utf-8", "replace"))
    block = (C.c_float * n).from_address(memory)
    weakref.finalize(block, lib.pj_host_free, device, memory).atexit = False  # the process gives it back
    rows: Float32Array = np.frombuffer(memoryview(block), np.float32).reshape(n_rows, width)
    return rows
