"""Single ops of libpyjet for tests and micro-benchmarks, and what the library was built for."""

from __future__ import annotations

import ctypes as C

import numpy as np
import numpy.typing as npt

from pyjet.native.config import ERR_ARGUMENT, ISAS, Isa, number_of
from pyjet.native.library import NativeError, check_status, load_library
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, SAMPLE_DTYPE, Masks, Records, no_masks
from pyjet.native.step import Float32Array, address

_FLOAT32 = np.dtype(np.float32)


def build_info() -> str:
    """One line: version, CPU instruction sets and CUDA architectures inside the library."""
    text: bytes = load_library().pj_build_info()
    return text.decode("utf-8", "replace")


def cpu_isa() -> str:
    """Best instruction set of this processor that the library has kernels for."""
    number: int = load_library().pj_cpu_isa()
    return ISAS[number]


def matmul(
    ggml_type: int,
    weight: npt.NDArray[np.uint8],
    n_in: int,
    n_out: int,
    x: Float32Array,
    *,
    isa: Isa = "auto",
    n_threads: int = 1,
    repeat: int = 1,
) -> tuple[Float32Array, float]:
    """``y = x @ W.T`` through the step's own kernels.

    ``weight``: quantised bytes of ``n_out`` rows of ``n_in``; ``x`` float32[n_rows, n_in]. Returns float32[n_rows,
    n_out] and the mean microseconds of a product (packing excluded).
    """
    lib = load_library()
    data = weight_bytes(weight)
    if x.ndim != 2 or x.shape[1] != n_in:
        raise NativeError(ERR_ARGUMENT, f"x must have shape (rows, {n_in}), not {x.shape}")
    rows: Float32Array = np.ascontiguousarray(x, _FLOAT32)
    y: Float32Array = np.empty((rows.shape[0], n_out), np.float32)
    us = C.c_double()
    isa_number = number_of("isa", isa, ISAS)
    status = lib.pj_op_matmul(
        ggml_type, data.ctypes.data, data.nbytes, n_in, n_out, rows.ctypes.data, rows.shape[0], y.ctypes.data,
        isa_number, n_threads, repeat, C.byref(us),
    )  # fmt: skip
    check_status(lib, status)
    return y, us.value


def dequantize(ggml_type: int, weight: npt.NDArray[np.uint8], n_in: int, n_rows: int) -> Float32Array:
    """float32[n_rows, n_in] of quantised bytes, exactly as the embedding lookup reads them."""
    lib = load_library()
    data = weight_bytes(weight)
    out: Float32Array = np.empty((n_rows, n_in), np.float32)
    status = lib.pj_op_dequantize(ggml_type, data.ctypes.data, data.nbytes, n_in, n_rows, out.ctypes.data)
    check_status(lib, status)
    return out


def weight_bytes(weight: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    if weight.dtype != np.uint8:
        raise NativeError(ERR_ARGUMENT, f"weights must be raw bytes (uint8), not {weight.dtype}")
    return np.ascontiguousarray(weight).reshape(-1)


def sample_row(
    logits: Float32Array, sample: Records, counts: Records, biases: Records, masks: Masks | None = None
) -> int:
    """The token that a step would choose from float32[n_vocab] logits by SAMPLE_DTYPE[1]; -1 when it is not settled."""
    lib = load_library()
    masks = no_masks() if masks is None else masks
    token = C.c_int32(-1)
    status = lib.pj_op_sample(
        address("logits", logits, _FLOAT32, logits.shape),
        logits.shape[0],
        address("sample", sample, SAMPLE_DTYPE, (1,)),
        address("counts", counts, COUNT_DTYPE, counts.shape),
        len(counts),
        address("biases", biases, BIAS_DTYPE, biases.shape),
        len(biases),
        address("masks", masks, np.dtype(np.uint32), masks.shape),
        len(masks),
        C.byref(token),
    )
    check_status(lib, status)
    return token.value
