"""Arrays in host memory that a device copies to fast."""

from __future__ import annotations

import ctypes as C
import weakref

import numpy as np
import numpy.typing as npt

from pyjet.native.config import ERR_MEMORY
from pyjet.native.library import NativeError
from pyjet.native.step import Float32Array

UInt8Array = npt.NDArray[np.uint8]


def host_rows(lib: C.CDLL, device: int, n_rows: int, width: int) -> Float32Array:
    """float32[n_rows, width], uninitialised; freed with the last array that uses it, not with an engine."""
    data = host_bytes(lib, device, n_rows * width * C.sizeof(C.c_float))
    rows: Float32Array = data.view(np.float32).reshape(n_rows, width)
    return rows


def host_bytes(lib: C.CDLL, device: int, n_bytes: int) -> UInt8Array:
    """uint8[n_bytes], uninitialised; freed with the last array that uses it, not with an engine."""
    memory = lib.pj_host_alloc(device, n_bytes)
    if not memory:
        raise NativeError(ERR_MEMORY, lib.pj_last_error().decode("utf-8", "replace"))
    block = (C.c_uint8 * n_bytes).from_address(memory)
    weakref.finalize(block, lib.pj_host_free, device, memory).atexit = False  # the process gives it back
    data: UInt8Array = np.frombuffer(memoryview(block), np.uint8)
    return data
