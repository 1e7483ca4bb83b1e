"""What a step cannot do without: bytes to move and multiply-adds, by kind of op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.step_rows import Rows
from pyjet.model.reader import Model, TensorInfo

KV_BYTES = {"f16": 2.0, "q8_0": 34 / 32}  # per element; q8_0: 32 bytes and one f16 scale for 32


@dataclass(frozen=True)
class Work:
    """Bytes between memory and chip, multiply-adds of the formulas."""

    n_bytes: float
    macs: float

    def __add__(self, other: Work) -> Work:
        return Work(self.n_bytes + other.n_bytes, self.macs + other.macs)


def head_tensor(model: Model) -> TensorInfo:
    """The output matrix, which is the embedding where a file has no other."""
    return model.tensors.get("output.weight") or model.tensors["token_embd.weight"]


def trunk_tensors(model: Model) -> list[TensorInfo]:
    """Weights of the blocks of a plain step: no embedding, no MTP block."""
    blocks = [(name.split("."), tensor) for name, tensor in model.tensors.items() if name.startswith("blk.")]
    return [tensor for parts, tensor in blocks if int(parts[1]) < model.hyperparams.n_block]


def decode_weight_bytes(model: Model) -> int:
    """Bytes of the file's weights that a decode step reads, however few its rows: trunk and head."""
    return sum(tensor.n_bytes for tensor in [*trunk_tensors(model), head_tensor(model)])


def n_rows(parts: Sequence[Rows]) -> int:
    return sum(part.count for part in parts)


def n_delta_net_layers(model: Model) -> int:
    is_attention = model.hyperparams.block_is_attention
    return len(is_attention) - sum(is_attention)


def products(model: Model, parts: Sequence[Rows]) -> Work:
    """All matrix products; a matrix is read once."""
    selected = sum(part.count for part in parts if part.flags)
    matrices = [tensor for tensor in trunk_tensors(model) if len(tensor.shape) == 2 and min(tensor.shape) > 4]
    work = Work(sum(t.n_bytes for t in matrices), n_rows(parts) * sum(math.prod(t.shape) for t in matrices))
    if selected:
        head = head_tensor(model)
        work += Work(head.n_bytes, selected * math.prod(head.shape))
    return work


def attention(model: Model, parts: Sequence[Rows], kv: str) -> Work:
    """Keys and values of each sequence read once for all its rows."""
    hp = model.hyperparams
    n_layers = sum(hp.block_is_attention)
    seen = sum(part.position + part.count for part in parts)
    pairs = sum(part.count * part.position + part.count * (part.count + 1) // 2 for part in parts)
    n_bytes = n_layers * seen * 2 * hp.n_head_kv * hp.head_dim * KV_BYTES[kv]
    return Work(n_bytes, n_layers * pairs * hp.n_head * 2 * hp.head_dim)


def delta_net(model: Model, parts: Sequence[Rows]) -> Work:
    """States, f32, read and written once a step; three passes over a state for each row."""
    hp = model.hyperparams
    n_layers = n_delta_net_layers(model)
    state = hp.gdn_dim * hp.gdn_value_width
    return Work(n_layers * len(parts) * 8 * state, n_layers * n_rows(parts) * 3 * state)


def convolution(model: Model, parts: Sequence[Rows]) -> Work:
    """Windows, f32, read and written once a step; every channel of a row times its taps."""
    hp = model.hyperparams
    n_layers = n_delta_net_layers(model)
    window = (hp.conv_kernel - 1) * hp.conv_width
    return Work(n_layers * len(parts) * 8 * window, n_layers * n_rows(parts) * hp.conv_kernel * hp.conv_width)


def by_op(model: Model, parts: Sequence[Rows], kv: str) -> dict[str, Work]:
    """Work of the ops that have any to speak of, by the names of `pj_engine_op_times`."""
    return {
        "gemm": products(model, parts),
        "attention": attention(model, parts, kv),
        "convolve": convolution(model, parts),
        "gdn": delta_net(model, parts),
    }
