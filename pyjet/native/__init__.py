"""The binding to libpyjet: the only package that knows the C ABI. numpy in, numpy out."""

from __future__ import annotations

from pyjet.native.config import EngineConfig
from pyjet.native.devices import Gpu, device_count, device_name, list_gpus
from pyjet.native.engine import EngineInfo, NativeEngine, OpTime
from pyjet.native.library import NativeError, library_path
from pyjet.native.memory import MemoryPlan, memory_plan, probe_memory_plan
from pyjet.native.ops import build_info, cpu_isa, dequantize, matmul, sample_row
from pyjet.native.samples import BIAS_DTYPE, COUNT_DTYPE, MAX_CANDIDATES, MAX_SAMPLE_TOKENS, SAMPLE_DTYPE
from pyjet.native.step import (
    NO_DRAFTS,
    ROW_ARGMAX,
    ROW_HIDDEN,
    ROW_LOGITS,
    ROW_SAMPLE,
    SEQ_DTYPE,
    SEQ_RESET,
    StepBatch,
    StepResult,
)
from pyjet.native.top_k import top_indices

__all__ = [
    "BIAS_DTYPE",
    "COUNT_DTYPE",
    "MAX_CANDIDATES",
    "MAX_SAMPLE_TOKENS",
    "NO_DRAFTS",
    "ROW_ARGMAX",
    "ROW_HIDDEN",
    "ROW_LOGITS",
    "ROW_SAMPLE",
    "SAMPLE_DTYPE",
    "SEQ_DTYPE",
    "SEQ_RESET",
    "EngineConfig",
    "EngineInfo",
    "Gpu",
    "MemoryPlan",
    "NativeEngine",
    "NativeError",
    "OpTime",
    "StepBatch",
    "StepResult",
    "build_info",
    "cpu_isa",
    "dequantize",
    "device_count",
    "device_name",
    "library_path",
    "list_gpus",
    "matmul",
    "memory_plan",
    "probe_memory_plan",
    "sample_row",
    "top_indices",
]
