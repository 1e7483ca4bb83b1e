"""The structures of native/include/pyjet.h, field for field. tests/native/test_abi.py compares both."""

from __future__ import annotations

import ctypes as C
from typing import Any

ABI_VERSION = 6
MAX_DRAFT = 7  # PJ_MAX_DRAFT

Progress = C.CFUNCTYPE(C.c_int32, C.c_void_p, C.c_char_p, C.c_uint64, C.c_uint64)


class Tensor(C.Structure):
    """pj_tensor"""

    _fields_ = [
        ("name", C.c_char_p),
        ("data", C.c_void_p),
        ("n_bytes", C.c_uint64),
        ("shape", C.c_int64 * 4),
        ("type", C.c_int32),
        ("n_dims", C.c_int32),
    ]


class Model(C.Structure):
    """pj_model"""

    _fields_ = [
        ("abi_version", C.c_int32),
        ("arch", C.c_int32),
        ("n_block", C.c_int32),
        ("n_nextn", C.c_int32),
        ("n_embd", C.c_int32),
        ("n_ff", C.c_int32),
        ("n_head", C.c_int32),
        ("n_head_kv", C.c_int32),
        ("head_dim", C.c_int32),
        ("rope_dim", C.c_int32),
        ("n_gdn_head_v", C.c_int32),
        ("n_gdn_head_k", C.c_int32),
        ("gdn_dim", C.c_int32),
        ("conv_kernel", C.c_int32),
        ("n_vocab", C.c_int32),
        ("n_ctx_train", C.c_int32),
        ("rope_base", C.c_float),
        ("rms_eps", C.c_float),
        ("block_is_attention", C.POINTER(C.c_uint8)),
        ("tensors", C.POINTER(Tensor)),
        ("n_tensors", C.c_int32),
        ("rope_type", C.c_int32),
    ]


class Config(C.Structure):
    """pj_config"""

    _fields_ = [
        ("abi_version", C.c_int32),
        ("device", C.c_int32),
        ("device_index", C.c_int32),
        ("isa", C.c_int32),
        ("n_threads", C.c_int32),
        ("page_tokens", C.c_int32),
        ("n_pages", C.c_int32),
        ("n_state_slots", C.c_int32),
        ("max_rows", C.c_int32),
        ("max_seqs", C.c_int32),
        ("max_spec", C.c_int32),
        ("kv_type_k", C.c_int32),
        ("kv_type_v", C.c_int32),
        ("profile", C.c_int32),
        ("progress", Progress),
        ("progress_user", C.c_void_p),
        ("max_draft", C.c_int32),
        ("draft_vocab", C.c_int32),
    ]


class MemoryPlan(C.Structure):
    """pj_memory_plan"""

    _fields_ = [
        ("weight_bytes", C.c_uint64),
        ("page_bytes", C.c_uint64),
        ("kv_bytes", C.c_uint64),
        ("state_bytes", C.c_uint64),
        ("workspace_bytes", C.c_uint64),
        ("reserve_bytes", C.c_uint64),
        ("free_bytes", C.c_uint64),
        ("total_bytes", C.c_uint64),
        ("device_name", C.c_char * 128),
    ]


class Seq(C.Structure):
    """pj_seq"""

    _fields_ = [
        ("state_slot", C.c_int32),
        ("row_begin", C.c_int32),
        ("n_rows", C.c_int32),
        ("n_spec", C.c_int32),
        ("n_accept", C.c_int32),
        ("page_begin", C.c_int32),
        ("n_pages", C.c_int32),
        ("flags", C.c_uint32),
        ("n_verify", C.c_int32),
        ("n_draft", C.c_int32),
        ("draft_sample", C.c_int32),
        ("reserved", C.c_int32),
    ]


class TokenCount(C.Structure):
    """pj_token_count"""

    _fields_ = [
        ("token", C.c_int32),
        ("count", C.c_int32),
    ]


class TokenBias(C.Structure):
    """pj_token_bias"""

    _fields_ = [
        ("token", C.c_int32),
        ("bias", C.c_float),
    ]


class Sample(C.Structure):
    """pj_sample"""

    _fields_ = [
        ("seed", C.c_uint64),
        ("top_p", C.c_double),
        ("min_p", C.c_double),
        ("temperature", C.c_float),
        ("repeat_penalty", C.c_float),
        ("frequency_penalty", C.c_float),
        ("presence_penalty", C.c_float),
        ("top_k", C.c_int32),
        ("min_keep", C.c_int32),
        ("count_begin", C.c_int32),
        ("n_counts", C.c_int32),
        ("bias_begin", C.c_int32),
        ("n_biases", C.c_int32),
        ("index", C.c_int32),
        ("mask_begin", C.c_int32),
    ]


class StepIn(C.Structure):
    """pj_step_in; arrays as plain addresses, their types are checked in pyjet.native.step"""

    _fields_ = [
        ("kind", C.c_int32),
        ("n_rows", C.c_int32),
        ("n_seqs", C.c_int32),
        ("n_page_entries", C.c_int32),
        ("row_token", C.c_void_p),
        ("row_position", C.c_void_p),
        ("row_seq", C.c_void_p),
        ("row_flags", C.c_void_p),
        ("row_hidden", C.c_void_p),
        ("seqs", C.c_void_p),
        ("page_table", C.c_void_p),
        ("samples", C.c_void_p),
        ("counts", C.c_void_p),
        ("biases", C.c_void_p),
        ("n_samples", C.c_int32),
        ("n_counts", C.c_int32),
        ("n_biases", C.c_int32),
        ("n_draft_blocks", C.c_int32),
        ("row_next", C.c_void_p),
        ("draft_blocks", C.c_void_p),
        ("masks", C.c_void_p),
        ("n_mask_words", C.c_int32),
        ("masks_late", C.c_int32),
    ]


class StepOut(C.Structure):
    """pj_step_out"""

    _fields_ = [
        ("logits", C.c_void_p),
        ("hidden", C.c_void_p),
        ("argmax", C.c_void_p),
        ("logits_rows", C.c_int32),
        ("hidden_rows", C.c_int32),
        ("step_us", C.c_double),
        ("sampled", C.c_void_p),
        ("drafts", C.c_void_p),
        ("draft_probs", C.c_void_p),
    ]


class Info(C.Structure):
    """pj_info"""

    _fields_ = [
        ("weight_bytes", C.c_uint64),
        ("kv_bytes", C.c_uint64),
        ("state_bytes", C.c_uint64),
        ("workspace_bytes", C.c_uint64),
        ("device", C.c_int32),
        ("isa", C.c_int32),
        ("n_threads", C.c_int32),
        ("reserved", C.c_int32),
        ("device_name", C.c_char * 128),
    ]


class OpTimeEntry(C.Structure):
    """pj_op_time"""

    _fields_ = [
        ("name", C.c_char * 32),
        ("total_us", C.c_double),
        ("calls", C.c_uint64),
    ]


BY_C_NAME: dict[str, type[C.Structure]] = {
    "pj_tensor": Tensor,
    "pj_model": Model,
    "pj_config": Config,
    "pj_memory_plan": MemoryPlan,
    "pj_seq": Seq,
    "pj_token_count": TokenCount,
    "pj_token_bias": TokenBias,
    "pj_sample": Sample,
    "pj_step_in": StepIn,
    "pj_step_out": StepOut,
    "pj_info": Info,
    "pj_op_time": OpTimeEntry,
}

_ENGINE = C.c_void_p
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "pj_engine_create": (C.c_int32, [C.POINTER(Model), C.POINTER(Config), C.POINTER(_ENGINE)]),
    "pj_engine_destroy": (None, [_ENGINE]),
    "pj_engine_plan": (C.c_int32, [C.POINTER(Model), C.POINTER(Config), C.POINTER(MemoryPlan)]),
    "pj_step": (C.c_int32, [_ENGINE, C.POINTER(StepIn), C.POINTER(StepOut)]),
    "pj_step_start": (C.c_int32, [_ENGINE, C.POINTER(StepIn), C.POINTER(StepOut)]),
    "pj_step_wait": (C.c_int32, [_ENGINE]),
    "pj_masks_ready": (C.c_int32, [_ENGINE, C.c_int32]),
    "pj_state_bytes": (C.c_uint64, [_ENGINE]),
    "pj_state_commit": (C.c_int32, [_ENGINE, C.c_int32, C.c_int32]),
    "pj_state_reset": (C.c_int32, [_ENGINE, C.c_int32]),
    "pj_state_copy": (C.c_int32, [_ENGINE, C.c_int32, C.c_int32]),
    "pj_state_read": (C.c_int32, [_ENGINE, C.c_int32, C.c_void_p, C.c_uint64]),
    "pj_state_write": (C.c_int32, [_ENGINE, C.c_int32, C.c_void_p, C.c_uint64]),
    "pj_page_bytes": (C.c_uint64, [_ENGINE]),
    "pj_pages_copy": (C.c_int32, [_ENGINE, C.c_void_p, C.c_void_p, C.c_int32]),
    "pj_pages_read": (C.c_int32, [_ENGINE, C.c_void_p, C.c_int32, C.c_void_p, C.c_uint64]),
    "pj_pages_write": (C.c_int32, [_ENGINE, C.c_void_p, C.c_int32, C.c_void_p, C.c_uint64]),
    "pj_host_alloc": (C.c_void_p, [C.c_int32, C.c_uint64]),
    "pj_host_free": (None, [C.c_int32, C.c_void_p]),
    "pj_abi_version": (C.c_int32, []),
    "pj_last_error": (C.c_char_p, []),
    "pj_build_info": (C.c_char_p, []),
    "pj_cpu_isa": (C.c_int32, []),
    "pj_device_count": (C.c_int32, [C.c_int32]),
    "pj_device_name": (C.c_int32, [C.c_int32, C.c_int32, C.c_char_p, C.c_int32]),
    "pj_engine_info": (C.c_int32, [_ENGINE, C.POINTER(Info)]),
    "pj_engine_op_times": (C.c_int32, [_ENGINE, C.POINTER(OpTimeEntry), C.c_int32]),
    "pj_op_matmul": (
        C.c_int32,
        [C.c_int32, C.c_void_p, C.c_uint64, C.c_int32, C.c_int32, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32]
        + [C.c_int32, C.c_int32, C.POINTER(C.c_double)],
    ),
    "pj_op_dequantize": (C.c_int32, [C.c_int32, C.c_void_p, C.c_uint64, C.c_int32, C.c_int32, C.c_void_p]),
    "pj_op_sample": (
        C.c_int32,
        [C.c_void_p, C.c_int32, C.c_void_p, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32, C.c_void_p, C.c_int32]
        + [C.POINTER(C.c_int32)],
    ),
    "pj_top_indices": (C.c_int32, [C.c_void_p, C.c_int32, C.c_int32, C.c_void_p]),
}
