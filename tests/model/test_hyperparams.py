"""Hyperparameters: each refusal names its key."""

from __future__ import annotations

from typing import Any

import pytest

from pyjet.model import Hyperparams, Model, ModelError


def read(model: Model, changes: dict[str, Any]) -> Hyperparams:
    """The model's hyperparameters after the changes; None removes a key."""
    metadata = {key: value for key, value in {**model.metadata, **changes}.items() if value is not None}
    return Hyperparams.from_metadata(metadata, model.tensors)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", "llama", "general.architecture is 'llama'; pyjet runs 'qwen35'"),
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
