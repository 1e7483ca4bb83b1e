"""An engine's settings and its model with every field wrong: an error that names it and nothing left behind."""

from __future__ import annotations

import ctypes as C
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyjet.model.reader import Model
from pyjet.native import NativeEngine, NativeError
from pyjet.native.library import STATUS_NAMES, load_library
from pyjet.native.tables import ModelTables
from tests.native.checked_step import CONFIG, HUGE, LOWEST, good_batch
from tests.support.native_steps import Part, make_batch


def create(model: Model, model_changes: dict[str, Any], config_changes: dict[str, Any]) -> tuple[str, str]:
    """pj_engine_create with fields overwritten; returns the status' name and the message."""
    lib, tables, c_config, handle = load_library(), ModelTables(model), CONFIG.to_c(), C.c_void_p(1)
    for structure, changes in ((tables.c_model, model_changes), (c_config, config_changes)):
        for name, value in changes.items():
            setattr(structure, name, value)
    status = lib.pj_engine_create(C.byref(tables.c_model), C.byref(c_config), C.byref(handle))
    text = lib.pj_last_error().decode()
    assert (handle.value is None) == (status != 0)
    lib.pj_engine_destroy(handle)
    return STATUS_NAMES[status], text


CONFIG_CASES = [
    ("abi_version", 0, "argument", "pj_config.abi_version is 0"),
    ("device", 2, "argument", "pj_config.device is 2"),
    ("device", -1, "argument", "pj_config.device is -1"),
    ("isa", 4, "argument", "4"),
    ("isa", -1, "argument", "-1"),
    ("page_tokens", 0, "argument", "pj_config.page_tokens is 0"),
    ("page_tokens", 24, "argument", "pj_config.page_tokens is 24, not a multiple of 16"),
    ("page_tokens", 1040, "argument", "pj_config.page_tokens is 1040"),
    ("n_pages", 0, "argument", "pj_config.n_pages is 0"),
    ("n_pages", HUGE, "argument", "pj_config.n_pages"),
    ("n_state_slots", 0, "argument", "pj_config.n_state_slots is 0"),
    ("n_state_slots", LOWEST, "argument", "pj_config.n_state_slots"),
    ("max_rows", 0, "argument", "pj_config.max_rows is 0"),
    ("max_rows", HUGE, "argument", "pj_config.max_rows"),
    ("max_seqs", 0, "argument", "pj_config.max_seqs is 0"),
    ("max_seqs", 4097, "argument", "pj_config.max_seqs is 4097"),
    ("max_spec", -1, "argument", "pj_config.max_spec is -1"),
    ("max_spec", 16, "argument", "pj_config.max_spec is 16, allowed are 0..15"),
    ("kv_type_k", 2, "argument", "pj_config.kv_type_k is 2"),
    ("kv_type_v", -1, "argument", "pj_config.kv_type_v is -1"),
]
MODEL_CASES = [
    ("abi_version", 99, "argument", "pj_model.abi_version is 99"),
    ("arch", 2, "model", "architecture number 2"),
    ("n_block", 0, "model", "n_block"),
    ("n_block", HUGE, "model", "n_block"),
    ("n_nextn", 2, "model", "n_nextn"),
    ("n_nextn", -1, "model", "n_nextn"),
    ("n_embd", 0, "model", "n_embd"),
    ("n_embd", 24, "model", "n_embd"),
    ("n_embd", HUGE, "model", "n_embd"),
    ("n_embd", 272, "model", "tensor token_embd.weight has the shape [256, 320, 1, 1], the model needs [272, 320]"),
    ("n_ff", -16, "model", "n_ff"),
    ("n_ff", 288, "model", "tensor blk.0.ffn_gate.weight has the shape"),
    ("n_head", 0, "model", "n_head"),
    ("n_head", 6, "model", "tensor blk.1.attn_q.weight has the shape"),
    ("n_head_kv", 0, "model", "n_head_kv"),
    ("n_head_kv", 3, "model", "n_head_kv"),
    ("n_head_kv", 4, "model", "tensor blk.1.attn_k.weight has the shape"),
    ("head_dim", 40, "model", "head_dim"),
    ("head_dim", 2048, "model", "head_dim"),
    ("rope_dim", 0, "model", "rope_dim"),
    ("rope_dim", 15, "model", "rope_dim"),
    ("rope_dim", 66, "model", "rope_dim"),
    ("n_gdn_head_v", 0, "model", "n_gdn_head_v"),
    ("n_gdn_head_v", 6, "model", "tensor blk.0.attn_qkv.weight has the shape"),
    ("n_gdn_head_k", 3, "model", "n_gdn_head_k"),
    ("n_gdn_head_k", -2, "model", "n_gdn_head_k"),
    ("gdn_dim", 8, "model", "gdn_dim"),
    ("conv_kernel", 1, "model", "conv_kernel"),
    ("conv_kernel", 17, "model", "conv_kernel"),
    ("conv_kernel", 3, "model", "tensor blk.0.ssm_conv1d.weight has the shape"),
    ("n_vocab", 0, "model", "n_vocab"),
    ("n_vocab", 319, "model", "tensor token_embd.weight has the shape"),
    ("n_ctx_train", 0, "model", "n_ctx_train"),
    ("rope_base", 0.0, "model", "rope_base"),
    ("rope_base", float("nan"), "model", "rope_base"),
    ("rms_eps", -1.0, "model", "rms_eps"),
    ("rms_eps", float("nan"), "model", "rms_eps"),
    ("block_is_attention", None, "argument", "pj_model.block_is_attention is NULL"),
    ("tensors", None, "argument", "pj_model.tensors is NULL"),
    ("n_tensors", -1, "argument", "pj_model.tensors"),
    ("n_tensors", 0, "model", "tensor token_embd.weight is missing"),
]


@pytest.mark.parametrize("name, value, status, message", CONFIG_CASES)
def test_config_fields(model: Model, name: str, value: Any, status: str, message: str) -> None:
    found, text = create(model, {}, {name: value})
    assert found == status and message in text


@pytest.mark.parametrize("name, value, status, message", MODEL_CASES)
def test_model_fields(model: Model, name: str, value: Any, status: str, message: str) -> None:
    found, text = create(model, {name: value}, {})
    assert found == status and message in text


def test_unchanged_structures_work(model: Model) -> None:
    assert create(model, {}, {}) == ("ok", "")


TENSOR_NAMES = [
    *("token_embd.weight", "output_norm.weight", "blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", "blk.0.ssm_a"),
    *("blk.0.ssm_dt.bias", "blk.0.ssm_conv1d.weight", "blk.0.ssm_norm.weight", "blk.0.ssm_alpha.weight"),
    *("blk.0.ssm_beta.weight", "blk.0.ssm_out.weight", "blk.0.attn_norm.weight", "blk.0.ffn_up.weight"),
    *("blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight"),
    *("blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight", "blk.1.post_attention_norm.weight"),
    *("blk.1.ffn_gate.weight", "blk.1.ffn_down.weight", "blk.2.attn_q.weight", "blk.2.nextn.eh_proj.weight"),
    *("blk.2.nextn.enorm.weight", "blk.2.nextn.hnorm.weight"),
]


@pytest.mark.parametrize("name", TENSOR_NAMES)
def test_missing_and_wrong_tensors_are_named(model: Model, name: str) -> None:
    tensor = model.tensors[name]
    shorter = tensor.data[: tensor.n_bytes - 2]
    cases = [
        (None, "is missing"),
        (replace(tensor, shape=(tensor.shape[0] + 32, *tensor.shape[1:])), "has the shape"),
        (replace(tensor, shape=(*tensor.shape, *[1] * (3 - len(tensor.shape)), 2)), "has the shape"),
        (replace(tensor, type=99), "has ggml type 99; supported are F32"),
        (replace(tensor, n_bytes=tensor.n_bytes - 2, data=shorter), f"has {tensor.n_bytes - 2} bytes"),
    ]
    for changed, message in cases:
        tensors = {key: value for key, value in model.tensors.items() if key != name}
        if changed is not None:
            tensors[name] = changed
        with pytest.raises(NativeError) as caught:
            NativeEngine(replace(model, tensors=tensors), CONFIG)
        assert caught.value.kind == "model"
        assert f"tensor {name}" in caught.value.message and message in caught.value.message


def test_rows_that_do_not_fit_the_blocks_of_a_type(model: Model) -> None:
    """The convolution has rows of 4 values; Q8_0 has blocks of 32."""
    name = "blk.0.ssm_conv1d.weight"
    tensors = {**model.tensors, name: replace(model.tensors[name], type=8)}
    with pytest.raises(NativeError, match=f"tensor {name}: rows of 4 elements do not fit Q8_0 blocks of 32"):
        NativeEngine(replace(model, tensors=tensors), CONFIG)


def test_progress_counts_up_and_cancels_anywhere(model: Model) -> None:
    calls: list[tuple[str, int, int]] = []
    NativeEngine(model, CONFIG, lambda *call: calls.append(call)).close()
    done, totals = [call[1] for call in calls], {call[2] for call in calls}
    assert done == sorted(done) and len(totals) == 1 and done[-1] == max(totals) and all(call[0] for call in calls)
    for stop in (0, len(calls) // 2, len(calls) - 1):
        seen = iter(range(len(calls)))
        with pytest.raises(NativeError) as caught:
            NativeEngine(model, CONFIG, lambda *_, seen=seen, stop=stop: next(seen) != stop)
        assert caught.value.kind == "cancelled" and caught.value.message
    with NativeEngine(model, CONFIG) as engine:
        engine.step(good_batch())


def test_a_model_without_mtp_block_has_no_mtp_step(model: Model) -> None:
    without = replace(model, hyperparams=replace(model.hyperparams, n_nextn=0))
    with NativeEngine(without, CONFIG) as engine, pytest.raises(NativeError, match="no MTP block"):
        engine.mtp(make_batch(Part([1], reset=False)), np.zeros((1, engine.n_embd), np.float32))
