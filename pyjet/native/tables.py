"""Turns a loaded GGUF model into the tables that pj_engine_create reads."""

from __future__ import annotations

import ctypes as C
from typing import TYPE_CHECKING, Any

import numpy as np

from pyjet.model.hyperparams import DENSE
from pyjet.native import structs
from pyjet.native.config import ERR_ARGUMENT
from pyjet.native.library import NativeError

if TYPE_CHECKING:
    from pyjet.model.reader import Model, TensorInfo

ARCHITECTURES = {"qwen35": 0, **dict.fromkeys(DENSE, 1)}  # pj_arch
_SAME_NAME = (
    "n_block",
    "n_nextn",
    "n_embd",
    "n_ff",
    "n_head",
    "n_head_kv",
    "head_dim",
    "rope_dim",
    "n_gdn_head_v",
    "n_gdn_head_k",
    "gdn_dim",
    "conv_kernel",
    "n_vocab",
    "n_ctx_train",
    "rope_base",
    "rms_eps",
)


class ModelTables:
    """pj_model with everything it points to. Must live as long as the engine: native reads the tensors in place."""

    def __init__(self, model: Model) -> None:
        hp = model.hyperparams
        if hp.arch not in ARCHITECTURES:
            names = ", ".join(ARCHITECTURES)
            raise NativeError(ERR_ARGUMENT, f"architecture {hp.arch!r} is unknown; use one of {names}")
        tensors = list(model.tensors.values())
        self._keep: list[Any] = [tensor.data for tensor in tensors]
        self._tensors = (structs.Tensor * len(tensors))(*(tensor_entry(tensor) for tensor in tensors))
        self._attention = (C.c_uint8 * len(hp.block_is_attention))(*(int(flag) for flag in hp.block_is_attention))
        self.c_model = structs.Model(
            abi_version=structs.ABI_VERSION,
            arch=ARCHITECTURES[hp.arch],
            rope_type=int(hp.rope_in_pairs),
            block_is_attention=C.cast(self._attention, C.POINTER(C.c_uint8)),
            tensors=C.cast(self._tensors, C.POINTER(structs.Tensor)),
            n_tensors=len(tensors),
            **{name: getattr(hp, name) for name in _SAME_NAME},
        )


def tensor_entry(tensor: TensorInfo) -> structs.Tensor:
    """pj_tensor of one GGUF tensor; the data stays where the file is mapped."""
    data = tensor.data
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous or data.nbytes < tensor.n_bytes:
        raise NativeError(ERR_ARGUMENT, f"tensor {tensor.name}: data is not {tensor.n_bytes} contiguous bytes")
    if not 1 <= len(tensor.shape) <= 4:
        raise NativeError(ERR_ARGUMENT, f"tensor {tensor.name} has {len(tensor.shape)} dimensions, not 1 to 4")
    shape = (*tensor.shape, 1, 1, 1)[:4]
    return structs.Tensor(
        tensor.name.encode(), data.ctypes.data, tensor.n_bytes, (C.c_int64 * 4)(*shape), tensor.type, len(tensor.shape)
    )
