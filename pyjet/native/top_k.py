"""The best of a vocabulary's logits, without sorting them all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyjet.native.library import check_status, load_library
from pyjet.native.step import Float32Array


def top_indices(values: Float32Array, k: int) -> npt.NDArray[np.int32]:
    """int32[min(k, n)]: indices of the ``k`` largest of float32[n], best first, lowest index first among equals.

    NaN comes after everything else. Raises NativeError for a negative ``k``.
    """
    lib = load_library()
    data: Float32Array = np.ascontiguousarray(values, np.float32)
    out: npt.NDArray[np.int32] = np.empty(max(0, min(k, data.shape[0])), np.int32)
    check_status(lib, lib.pj_top_indices(data.ctypes.data, data.shape[0], min(k, data.shape[0]), out.ctypes.data))
    return out
