"""Which tensors a model file has, with which shapes and types.

Names and shapes as the GGUF converter writes them; shapes in ggml order, so a matrix is (n_in, n_out).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from gguf import GGMLQuantizationType

from pyjet.model.errors import ModelError
from pyjet.model.hyperparams import Hyperparams
from pyjet.model.weight_types import SUPPORTED_NAMES, SUPPORTED_TYPES

Expected = tuple[str, tuple[int, ...], bool]


class Shaped(Protocol):
    """What the check needs to know of a tensor."""

    @property
    def type(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def expected_tensors(hp: Hyperparams) -> list[Expected]:
    """All tensors of the model as (name, shape, required): trunk blocks, then the MTP block."""
    table: list[Expected] = [
        ("token_embd.weight", (hp.n_embd, hp.n_vocab), True),
        ("output_norm.weight", (hp.n_embd,), True),
        ("output.weight", (hp.n_embd, hp.n_vocab), False),  # missing: tied to token_embd
    ]
    if not hp.is_hybrid:
        table.append(("rope_freqs.weight", (hp.rope_dim // 2,), False))  # divisors of rope's frequencies (Llama 3)
        for index in range(hp.n_block):
            table += _block(index, _plain_attention(hp), "ffn_norm", hp)
        return table
    for index, attention in enumerate(hp.block_is_attention):
        table += _block(index, _gated_attention(hp) if attention else _delta_net(hp), "post_attention_norm", hp)
    for index in range(hp.n_block, hp.n_block + hp.n_nextn):
        table += _block(index, _gated_attention(hp), "post_attention_norm", hp)
        table += [(f"blk.{index}.nextn.{name}.weight", shape, required) for name, shape, required in _mtp(hp)]
    return table


def check_tensors(tensors: Mapping[str, Shaped], hp: Hyperparams) -> None:
    """Raise ModelError for a missing or foreign tensor, a wrong shape or an unsupported type."""
    known = set()
    for name, shape, required in expected_tensors(hp):
        known.add(name)
        tensor = tensors.get(name)
        if tensor is None:
            if required:
                raise ModelError(f"tensor '{name}' is missing; use a complete file of the {hp.arch} architecture")
        else:
            _check_shape(name, tensor.shape, shape)
            _check_type(name, GGMLQuantizationType(tensor.type), shape)
    for name in tensors:
        if name not in known:
            raise ModelError(
                f"tensor '{name}' is not part of the {hp.arch} architecture with {hp.n_block} trunk and {hp.n_nextn} "
                "MTP blocks; use an unmodified conversion of the model"
            )


def needs_f32(name: str, shape: tuple[int, ...]) -> bool:
    """Vectors and the convolution are small and numerically delicate: every converter keeps them in F32."""
    return len(shape) == 1 or name.endswith(".ssm_conv1d.weight")


def _check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    trimmed = shape
    while len(trimmed) > len(expected) and trimmed[-1] == 1:
        trimmed = trimmed[:-1]
    if trimmed != expected:
        raise ModelError(
            f"tensor '{name}' has shape {list(shape)}, expected {list(expected)} by the metadata; one of them is wrong"
        )


def _check_type(name: str, kind: GGMLQuantizationType, shape: tuple[int, ...]) -> None:
    if needs_f32(name, shape):
        if kind != GGMLQuantizationType.F32:
            raise ModelError(f"tensor '{name}' has type {kind.name}, expected F32; quantise the model again")
    elif kind not in SUPPORTED_TYPES:
        raise ModelError(f"tensor '{name}' has type {kind.name}, which is not supported; these are: {SUPPORTED_NAMES}")


def _block(index: int, mixer: Iterable[Expected], second_norm: str, hp: Hyperparams) -> list[Expected]:
    rows: list[Expected] = [
        ("attn_norm.weight", (hp.n_embd,), True),
        *mixer,
        (f"{second_norm}.weight", (hp.n_embd,), True),
        ("ffn_gate.weight", (hp.n_embd, hp.n_ff), True),
        ("ffn_up.weight", (hp.n_embd, hp.n_ff), True),
        ("ffn_down.weight", (hp.n_ff, hp.n_embd), True),
    ]
    return [(f"blk.{index}.{name}", shape, required) for name, shape, required in rows]


def _gated_attention(hp: Hyperparams) -> Iterator[Expected]:
    yield from _projections(hp, 2 * hp.n_head * hp.head_dim)  # per head: query, then output gate
    yield "attn_q_norm.weight", (hp.head_dim,), True
    yield "attn_k_norm.weight", (hp.head_dim,), True


def _plain_attention(hp: Hyperparams) -> Iterator[Expected]:
    yield from _projections(hp, hp.n_head * hp.head_dim)
    if hp.arch == "qwen3":
        yield "attn_q_norm.weight", (hp.head_dim,), True
        yield "attn_k_norm.weight", (hp.head_dim,), True
    yield "attn_q.bias", (hp.n_head * hp.head_dim,), False
    yield "attn_k.bias", (hp.n_head_kv * hp.head_dim,), False
    yield "attn_v.bias", (hp.n_head_kv * hp.head_dim,), False
    yield "attn_output.bias", (hp.n_embd,), False


def _projections(hp: Hyperparams, q_outputs: int) -> Iterator[Expected]:
    kv_width = hp.n_head_kv * hp.head_dim
    yield "attn_q.weight", (hp.n_embd, q_outputs), True
    yield "attn_k.weight", (hp.n_embd, kv_width), True
    yield "attn_v.weight", (hp.n_embd, kv_width), True
    yield "attn_output.weight", (hp.n_head * hp.head_dim, hp.n_embd), True


def _delta_net(hp: Hyperparams) -> Iterator[Expected]:
    yield "attn_qkv.weight", (hp.n_embd, hp.conv_width), True
    yield "attn_gate.weight", (hp.n_embd, hp.gdn_value_width), True
    yield "ssm_conv1d.weight", (hp.conv_kernel, hp.conv_width), True
    yield "ssm_dt.bias", (hp.n_gdn_head_v,), True
    yield "ssm_a", (hp.n_gdn_head_v,), True
    yield "ssm_beta.weight", (hp.n_embd, hp.n_gdn_head_v), True
    yield "ssm_alpha.weight", (hp.n_embd, hp.n_gdn_head_v), True
    yield "ssm_norm.weight", (hp.gdn_dim,), True
    yield "ssm_out.weight", (hp.gdn_value_width, hp.n_embd), True


def _mtp(hp: Hyperparams) -> Iterator[Expected]:
    yield "eh_proj", (2 * hp.n_embd, hp.n_embd), True
    yield "enorm", (hp.n_embd,), True
    yield "hnorm", (hp.n_embd,), True
    yield "embed_tokens", (hp.n_embd, hp.n_vocab), False  # missing: token_embd
    yield "shared_head_head", (hp.n_embd, hp.n_vocab), False  # missing: the trunk's head
    yield "shared_head_norm", (hp.n_embd,), False  # missing: output_norm
