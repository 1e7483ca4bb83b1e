"""Hyperparameters: each refusal names its key."""

from __future__ import annotations

from typing import Any

import pytest

from pyjet.model import Hyperparams, Model, ModelError
from pyjet.model.architecture import expected_tensors


def read(model: Model, changes: dict[str, Any]) -> Hyperparams:
    """The model's hyperparameters after the changes; None removes a key."""
    metadata = {key: value for key, value in {**model.metadata, **changes}.items() if value is not None}
    return Hyperparams.from_metadata(metadata, model.tensors)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", "gemma3", "is 'gemma3'; pyjet runs 'qwen35', 'qwen3', 'qwen2', 'llama'"),
        ("general.architecture", None, "general.architecture' is missing"),
        ("qwen35.block_count", None, "is missing"),
        ("qwen35.block_count", 1, "leaves no trunk block"),
        ("qwen35.block_count", True, "expected an integer"),
        ("qwen35.nextn_predict_layers", 2, "is 2, expected 0 to 1"),
        ("qwen35.embedding_length", 0, "is 0, expected"),
        ("qwen35.embedding_length", 512.0, "is 512.0, expected an integer"),
        ("qwen35.feed_forward_length", [1024] * 8 + [512], "differs from block to block"),
        ("qwen35.context_length", 1 << 31, "expected 1 to"),
        ("qwen35.attention.head_count_kv", 3, "does not divide"),
        ("qwen35.attention.key_length", 250, "not a multiple of 16"),
        ("qwen35.attention.value_length", 128, "128 differs from the key length 256"),
        ("qwen35.attention.layer_norm_rms_epsilon", float("nan"), "is nan"),
        ("qwen35.attention.layer_norm_rms_epsilon", "small", "expected a number"),
        ("qwen35.attention.recurrent_layers", [True], "one entry for each of 9 blocks"),
        ("qwen35.rope.dimension_count", 512, "expected 2 to 256"),
        ("qwen35.rope.dimension_count", 63, "is odd"),
        ("qwen35.rope.dimension_sections", [11, 11, 2, 8], "without a text position"),
        ("qwen35.rope.dimension_sections", [0, 0, 0, 0], "without a text position"),
        ("qwen35.rope.dimension_sections", None, "expected up to four sizes"),
        ("qwen35.rope.dimension_sections", [-1, 11, 10, 0], "expected up to four sizes"),
        ("qwen35.rope.freq_base", 0.0, "expected 1.0 to"),
        ("qwen35.rope.scaling.type", "yarn", "'yarn' with factor 1.0 is not supported"),
        ("qwen35.ssm.state_size", 120, "not a multiple of 16"),
        ("qwen35.ssm.group_count", 3, "do not divide"),
        ("qwen35.ssm.inner_size", 1024, "1024 is not"),
        ("qwen35.ssm.conv_kernel", 1, "expected 2 to 16"),
        ("qwen35.full_attention_interval", 0, "expected 1 to"),
        ("tokenizer.ggml.tokens", [], "tokenizer.ggml.tokens"),
    ],
)
def test_refusals(tiny: Model, key: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read(tiny, {key: value})
    assert message in str(caught.value) and key in str(caught.value)


def test_optional_keys_have_llama_defaults(tiny: Model) -> None:
    hp = read(tiny, {"qwen35.rope.freq_base": None, "qwen35.full_attention_interval": None})
    assert hp.rope_base == 10000.0 and hp.block_is_attention == tiny.hyperparams.block_is_attention
    assert read(tiny, {"qwen35.nextn_predict_layers": None}).n_block == 9
    explicit = [True, False] * 4 + [False]
    assert read(tiny, {"qwen35.attention.recurrent_layers": explicit}).block_is_attention == (False, True) * 4


def test_sizes_stored_per_block(tiny: Model) -> None:
    per_block = [0, 0, 0, 2, 0, 0, 0, 2, 2]
    assert read(tiny, {"qwen35.attention.head_count_kv": per_block}).n_head_kv == 2


def dense(arch: str, **changes: Any) -> dict[str, Any]:
    """Metadata of a small dense model; `__` in a name stands for a dot."""
    sizes = {
        "block_count": 3,
        "context_length": 2048,
        "embedding_length": 96,
        "feed_forward_length": 64,
        "attention.head_count": 3,
        "attention.head_count_kv": 1,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    keys = {f"{arch}.{key}": value for key, value in sizes.items()}
    return {"general.architecture": arch, "tokenizer.ggml.tokens": ["a", "b"], **keys}


@pytest.mark.parametrize("arch", ["qwen3", "qwen2", "llama"])
def test_dense(arch: str) -> None:
    hp = Hyperparams.from_metadata(dense(arch), [])
    assert (hp.head_dim, hp.rope_dim, hp.n_head, hp.n_head_kv) == (32, 32, 3, 1)
    assert hp.block_is_attention == (True,) * 3 and not hp.has_state and not hp.is_hybrid
    assert (hp.n_nextn, hp.conv_width, hp.gdn_dim, hp.rope_sections) == (0, 0, 0, ())
    assert hp.rope_in_pairs == (arch == "llama")
    wider = dense(arch, attention__key_length=64, attention__value_length=64)
    assert Hyperparams.from_metadata(wider, []).rope_dim == 64


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("expert_count", 8, "8 experts are not supported"),
        ("nextn_predict_layers", 1, "MTP blocks of llama models"),
        ("attention.causal", False, "tokens after a position"),
        ("attention.scale", 0.25, "1 / sqrt(head width)"),
        ("rope.scaling.type", "yarn", "'yarn' with factor 1.0 is not supported"),
        ("rope.scaling.type", "longrope", "'longrope'"),
        ("rope.scaling.factor", 4.0, "'linear' with factor 4.0 is not supported"),
        ("rope.scale_linear", 2.0, "'linear' with factor 2.0 is not supported"),
    ],
)
def test_dense_refusals(key: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        Hyperparams.from_metadata({**dense("llama"), f"llama.{key}": value}, [])
    assert message in str(caught.value) and key.split(".")[0] in str(caught.value)


def test_dense_tensors() -> None:
    """Biases, frequency divisors and the output matrix may be there; norms of q and k belong to qwen3 alone."""
    names = {
        arch: {name: required for name, _, required in expected_tensors(Hyperparams.from_metadata(dense(arch), []))}
        for arch in ("qwen3", "qwen2", "llama")
    }
    for table in names.values():
        optional = {name for name, required in table.items() if not required}
        biases = {f"blk.{i}.attn_{part}.bias" for i in range(3) for part in ("q", "k", "v", "output")}
        assert optional == {"output.weight", "rope_freqs.weight", *biases}
    assert "blk.2.ffn_norm.weight" in names["llama"] and "blk.0.post_attention_norm.weight" not in names["llama"]
    norms = {f"blk.{i}.attn_{x}_norm.weight" for i in range(3) for x in "qk"}
    assert set(names["qwen3"]) - set(names["llama"]) == norms
    assert set(names["qwen2"]) == set(names["llama"])
