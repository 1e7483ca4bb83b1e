"""Memory arithmetic of pyjet inspect."""

from __future__ import annotations

import dataclasses

from bench.dense_shapes import DENSE_PRESETS
from cli.memory import GIB, Footprint, footprint, human, kv_bytes_per_token, state_bytes_per_slot
from pyjet.assets import default_model_path
from pyjet.model.reader import load_model


def test_embedded_model() -> None:
    model = load_model(default_model_path())
    need = footprint(model)
    # 2 full-attention blocks and the MTP block, keys and values, 2 heads of 256
    assert need.kv_per_token == {"f16": 3 * 2 * 512 * 2, "q8_0": 3 * 2 * 512 * 34 // 32}
    # 6 GDN blocks: 4 states of 128 x 128 and 3 inputs of 1024 channels (2 + 2 + 4 heads of 128)
    assert need.state_per_slot == 6 * 4 * (4 * 128 * 128 + 3 * 1024)
    assert need.weights == model.tensor_bytes


def test_27b_shape() -> None:
    tiny = load_model(default_model_path()).hyperparams
    large = dataclasses.replace(
        tiny,
        n_block=64,
        n_nextn=0,
        n_head_kv=4,
        n_gdn_head_v=48,
        n_gdn_head_k=16,
        block_is_attention=(False, False, False, True) * 16,
    )
    assert kv_bytes_per_token(large, "f16") == 64 * 1024
    assert state_bytes_per_slot(large) == 48 * 4 * (48 * 128 * 128 + 3 * 80 * 128)


def test_dense_models_have_no_state() -> None:
    hp = DENSE_PRESETS["llama3-8b"]
    assert state_bytes_per_slot(hp) == 0
    assert kv_bytes_per_token(hp, "f16") == 128 * 1024


def test_what_fits() -> None:
    need = Footprint(weights=10 * GIB, kv_per_token={"f16": 1 << 16}, state_per_slot=GIB)
    assert need.tokens_that_fit(16 * GIB, 4, "f16") == 2 * GIB >> 16
    assert need.tokens_that_fit(12 * GIB, 4, "f16") == 0
    assert need.total(1 << 14, 4, "f16") == 15 * GIB


def test_human() -> None:
    assert [human(n) for n in (17 * GIB, 3 << 20, 34 << 10)] == ["17.0 GiB", "3.0 MiB", "34.0 KiB"]
