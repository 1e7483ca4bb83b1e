"""Write a GGUF with random weights, of the qwen35 architecture or a dense one (bench/dense_shapes.py), for speed and
memory measurements only.

Names, shapes and types are those of a real model after `llama-quantize`, the MTP block included, so a server does
the same work per token as with the real one; the text is noise. Blocks are drawn byte by byte, nothing is quantised
from floats: a 27B file (16 GB) takes well under a minute.

    python -m bench.make_synthetic_gguf 27b.gguf --tokenizer-from vocab.gguf --chat-template template.jinja
    python -m bench.make_synthetic_gguf tiny.gguf --preset tiny
    python -m bench.make_synthetic_gguf - --list

How the weights are made
  - Every matrix has mean 0 and standard deviation 0.5/sqrt(n_in), so activations neither vanish nor overflow over
    64 blocks; norms are 1; the decay is drawn like a fresh initialisation: ssm_a = -exp(u) in [-16, -1], dt bias =
    softplus^-1 of [1e-3, 1e-1].
  - One pool of random blocks per (type, n_in); a tensor is a chain of slices of its pool at random offsets.
  - Output rows of tokens that are no text on their own (control tokens, parts of UTF-8 characters) are zero, so
    greedy sampling never picks them: servers hold such tokens back, which would blur counts.

Types of Q4_K_M (llama.cpp's rule): output.weight Q6_K; attn_v, attn_qkv and ffn_down Q6_K in the first and last
eighth of the blocks and every third between, every other matrix Q4_K. Any other type name is used for all matrices.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from bench.dense_shapes import DENSE_PRESETS, left_out
from pyjet.model.architecture import expected_tensors, needs_f32
from pyjet.model.byte_level import BYTE_ALPHABET
from pyjet.model.hyperparams import Hyperparams
from pyjet.model.reader import open_gguf
from pyjet.model.tokenizer import Tokenizer
from pyjet.model.vocabulary import TokenKind
from pyjet.model.weight_types import HALF_SCALE_OFFSETS

MIXED_TYPE = "Q4_K_M"
FILE_TYPES = {MIXED_TYPE: 15, "F32": 0, "F16": 1, "BF16": 32, "Q8_0": 7, "Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9,
              "Q2_K": 10, "Q3_K": 12, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}  # fmt: skip
POOL_BYTES = 64 << 20
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def _shape(n_block: int, interval: int, **sizes: Any) -> Hyperparams:
    kinds = tuple((index + 1) % interval == 0 for index in range(n_block))
    return Hyperparams(
        arch="qwen35", n_block=n_block, n_nextn=1, rope_base=1e7, rms_eps=1e-6, conv_kernel=4,
        block_is_attention=kinds, **sizes,
    )  # fmt: skip


_REAL = {"head_dim": 256, "rope_dim": 64, "rope_sections": (11, 11, 10, 0), "gdn_dim": 128}

#: "micro" (1 MB) is for tests of files, not of numbers: its heads are smaller than any real model's.
PRESETS = {
    "27b": _shape(64, 4, n_embd=5120, n_ff=17408, n_head=24, n_head_kv=4, n_gdn_head_v=48, n_gdn_head_k=16,
                  n_vocab=248320, n_ctx_train=262144, **_REAL),
    "27b-width": _shape(4, 4, n_embd=5120, n_ff=17408, n_head=24, n_head_kv=4, n_gdn_head_v=48, n_gdn_head_k=16,
                        n_vocab=32000, n_ctx_train=262144, **_REAL),
    "tiny": _shape(4, 4, n_embd=512, n_ff=1024, n_head=4, n_head_kv=2, n_gdn_head_v=4, n_gdn_head_k=2,
                   n_vocab=152064, n_ctx_train=65536, **_REAL),
    "micro": _shape(2, 2, n_embd=256, n_ff=256, n_head=4, n_head_kv=2, head_dim=64, rope_dim=16,
                    rope_sections=(3, 3, 2, 0), n_gdn_head_v=4, n_gdn_head_k=2, gdn_dim=64, n_vocab=320,
                    n_ctx_train=1024),
    **DENSE_PRESETS,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """name, shape in ggml order (contiguous dimension first) and type of one tensor."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType

    @property
    def n_bytes(self) -> int:
        block, block_bytes = GGML_QUANT_SIZES[self.kind]
        return math.prod(self.shape) // block * block_bytes


def tensor_table(hp: Hyperparams, type_name: str, without: Collection[str] | None = None) -> list[Tensor]:
    """All tensors in file order, but those with one of the parts `without` in their names; None: those that real
    files leave out."""
    skipped = without if without is not None else ("embed_tokens", "shared_head_head") if hp.is_hybrid else left_out(hp)
    rows = [(name, shape) for name, shape, _ in expected_tensors(hp) if not any(part in f".{name}" for part in skipped)]
    return [Tensor(name, shape, _tensor_type(name, shape, hp, type_name)) for name, shape in rows]


def _tensor_type(name: str, shape: tuple[int, ...], hp: Hyperparams, type_name: str) -> GGMLQuantizationType:
    if needs_f32(name, shape):
        return GGMLQuantizationType.F32
    if type_name != MIXED_TYPE:
        return GGMLQuantizationType[type_name]
    sensitive = any(part in name for part in ("attn_v.", "attn_qkv.", "ffn_down."))
    if name == "output.weight" or (sensitive and _more_bits(int(name.split(".")[1]), hp.n_block + hp.n_nextn)):
        return GGMLQuantizationType.Q6_K
    return GGMLQuantizationType.Q4_K


def _more_bits(index: int, n_all: int) -> bool:
    return index < n_all // 8 or index >= 7 * n_all // 8 or (index - n_all // 8) % 3 == 2


def random_blocks(rng: np.random.Generator, kind: GGMLQuantizationType, n_in: int, n_blocks: int) -> np.ndarray:
    """uint8 [n_blocks, block_bytes]: random blocks whose weights have mean 0 and std 0.5/sqrt(n_in)."""
    block, block_bytes = GGML_QUANT_SIZES[kind]
    std = 0.5 / math.sqrt(n_in)
    if kind not in HALF_SCALE_OFFSETS:
        values = rng.normal(0.0, std, (n_blocks, block)).astype(np.float32)
        return gguf.quants.quantize(values, kind).view(np.uint8).reshape(n_blocks, block_bytes)
    blocks = np.frombuffer(rng.bytes(n_blocks * block_bytes), np.uint8).reshape(n_blocks, block_bytes).copy()
    jitter = rng.uniform(0.9, 1.1, n_blocks)
    if len(HALF_SCALE_OFFSETS[kind]) == 1:
        jitter *= rng.choice([-1.0, 1.0], n_blocks)  # Q4_0's range -8..7, for one, is not centred
    for offset, scale in zip(HALF_SCALE_OFFSETS[kind], _scales(blocks[:512], kind, std)):
        _set_half(blocks, offset, scale * jitter)
    return blocks


def _scales(sample: np.ndarray, kind: GGMLQuantizationType, std: float) -> list[float]:
    """The block's scale and, if it has one, its minimum. Weights are linear in both: w = d * a + m * b."""
    offsets = HALF_SCALE_OFFSETS[kind]
    parts = []
    for active in offsets:
        unit = sample.copy()
        for offset in offsets:
            _set_half(unit, offset, np.full(len(unit), float(offset == active)))
        parts.append(gguf.quants.dequantize(unit, kind))
    ratios = [1.0] if len(parts) == 1 else [1.0, -float(parts[0].mean() / parts[1].mean())]
    spread = float(np.std(sum(ratio * part for ratio, part in zip(ratios, parts))))
    return [std / spread * ratio for ratio in ratios]


def _set_half(blocks: np.ndarray, offset: int, values: np.ndarray) -> None:
    blocks[:, offset : offset + 2] = values.astype(np.float16).view(np.uint8).reshape(-1, 2)


class RandomWeights:
    """Random tensor data, sliced from one pool of blocks for each (type, n_in)."""

    def __init__(self, seed: int, pool_bytes: int = POOL_BYTES) -> None:
        self._rng = np.random.default_rng(seed)
        self._pool_bytes = pool_bytes
        self._pools: dict[tuple[GGMLQuantizationType, int], np.ndarray] = {}

    def data(self, tensor: Tensor, zero_rows: np.ndarray | None = None) -> np.ndarray:
        """uint8 [n_bytes] of one tensor; all weights of zero_rows (row numbers) are 0."""
        if needs_f32(tensor.name, tensor.shape):
            return self._vector(tensor).astype(np.float32).reshape(-1).view(np.uint8)
        data = self._matrix(tensor)
        if zero_rows is not None:
            rows = data.reshape(tensor.shape[1], -1, GGML_QUANT_SIZES[tensor.kind][1])
            offsets = HALF_SCALE_OFFSETS.get(tensor.kind, (0, 2) if tensor.kind.name == "F32" else (0,))
            for offset in offsets:
                rows[zero_rows, :, offset : offset + 2] = 0
        return data.reshape(-1)

    def _matrix(self, tensor: Tensor) -> np.ndarray:
        pool = self._pool(tensor.kind, tensor.shape[0])
        out = np.empty((tensor.n_bytes // pool.shape[1], pool.shape[1]), np.uint8)
        filled = 0
        while filled < len(out):
            count = min(len(out) - filled, int(self._rng.integers(len(pool) // 4, len(pool) // 2 + 1)))
            start = int(self._rng.integers(0, len(pool) - count + 1))
            out[filled : filled + count] = pool[start : start + count]
            filled += count
        return out

    def _pool(self, kind: GGMLQuantizationType, n_in: int) -> np.ndarray:
        if (kind, n_in) not in self._pools:
            n_blocks = max(64, self._pool_bytes // GGML_QUANT_SIZES[kind][1])
            self._pools[kind, n_in] = random_blocks(self._rng, kind, n_in, n_blocks)
        return self._pools[kind, n_in]

    def _vector(self, tensor: Tensor) -> np.ndarray:
        rng, shape = self._rng, tensor.shape
        if tensor.name.endswith(".ssm_conv1d.weight"):
            return rng.normal(0.0, 0.5, shape)
        if tensor.name.endswith(".ssm_a"):
            return -np.exp(rng.uniform(0.0, math.log(16.0), shape))
        if tensor.name.endswith(".ssm_dt.bias"):
            step = np.exp(rng.uniform(math.log(1e-3), math.log(1e-1), shape))
            return step + np.log(-np.expm1(-step))
        if tensor.name.endswith(".bias"):
            return rng.normal(0.0, 0.3, shape)
        if tensor.name == "rope_freqs.weight":
            return rng.uniform(1.0, 8.0, shape)
        return np.ones(shape)


def tokenizer_metadata(source: str | Path | None, n_vocab: int) -> dict[str, Any]:
    """tokenizer.* keys of the GGUF `source`, or a plain byte-level tokenizer, padded to n_vocab tokens."""
    if source is not None:
        found = open_gguf(source)[0].metadata
        keys = {key: value for key, value in found.items() if key.startswith("tokenizer.")}
    else:
        alphabet = [*BYTE_ALPHABET, "\u0120t"]
        keys = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen35",
            "tokenizer.ggml.tokens": [*alphabet, *SPECIAL_TOKENS],
            "tokenizer.ggml.token_type": [TokenKind.NORMAL] * len(alphabet) + [TokenKind.CONTROL] * len(SPECIAL_TOKENS),
            "tokenizer.ggml.merges": ["\u0120 t"],
        }
    tokens = keys["tokenizer.ggml.tokens"]
    if len(tokens) > n_vocab:
        raise click.ClickException(f"the tokenizer has {len(tokens)} tokens, more than the vocabulary of {n_vocab}")
    for key, text in (("eos", "<|im_end|>"), ("padding", "<|endoftext|>")):
        if text in tokens:
            keys[f"tokenizer.ggml.{key}_token_id"] = tokens.index(text)
    kinds = keys.get("tokenizer.ggml.token_type") or [TokenKind.NORMAL] * len(tokens)
    # Fillers are normal tokens: whichever one a random model samples, it prints as text.
    fillers = [f"\u0120x{index}" for index in range(len(tokens), n_vocab)]
    keys["tokenizer.ggml.token_type"] = [int(kind) for kind in kinds] + [int(TokenKind.NORMAL)] * len(fillers)
    return {**keys, "tokenizer.ggml.tokens": [*tokens, *fillers], "tokenizer.ggml.add_bos_token": False}


def not_text(metadata: dict[str, Any]) -> np.ndarray:
    """Ids of control tokens and of tokens that are not valid UTF-8 on their own."""
    tokenizer = Tokenizer.from_metadata(metadata)

    def hidden(index: int) -> bool:
        piece = tokenizer.token_bytes(index)
        return tokenizer.is_special(index) or piece.decode("utf-8", "ignore").encode() != piece

    return np.array([index for index in range(tokenizer.n_vocab) if hidden(index)], np.int64)


def write_synthetic(
    path: str | Path,
    hp: Hyperparams,
    *,
    type_name: str = MIXED_TYPE,
    tokenizer_from: str | Path | None = None,
    chat_template: str | None = None,
    name: str | None = None,
    seed: int = 1,
    pool_bytes: int = POOL_BYTES,
    without: Collection[str] | None = None,
) -> list[Tensor]:
    """Write the file; returns its tensor table (which see for `without`)."""
    tensors = tensor_table(hp, type_name, without)
    tokenizer = tokenizer_metadata(tokenizer_from, hp.n_vocab)
    if chat_template is not None:
        tokenizer["tokenizer.chat_template"] = chat_template
    writer = gguf.GGUFWriter(path, hp.arch)
    writer.add_name(name or f"synthetic-{hp.arch}-{hp.n_block}x{hp.n_embd}")
    writer.add_file_type(FILE_TYPES[type_name])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_sizes(writer, hp)
    for key, value in tokenizer.items():
        _add_value(writer, key, value)
    for tensor in tensors:
        bytes_shape = (*reversed(tensor.shape[1:]), tensor.n_bytes // math.prod(tensor.shape[1:]))
        writer.add_tensor_info(tensor.name, bytes_shape, np.dtype(np.uint8), tensor.n_bytes, raw_dtype=tensor.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    weights, hidden = RandomWeights(seed, pool_bytes), not_text(tokenizer)
    for tensor in tensors:
        writer.write_tensor_data(weights.data(tensor, hidden if tensor.name == "output.weight" else None))
    writer.close()
    return tensors


def _add_sizes(writer: gguf.GGUFWriter, hp: Hyperparams) -> None:
    writer.add_block_count(hp.n_block + hp.n_nextn)
    writer.add_context_length(hp.n_ctx_train)
    writer.add_embedding_length(hp.n_embd)
    writer.add_feed_forward_length(hp.n_ff)
    writer.add_head_count(hp.n_head)
    writer.add_head_count_kv(hp.n_head_kv)
    writer.add_key_length(hp.head_dim)
    writer.add_value_length(hp.head_dim)
    writer.add_layer_norm_rms_eps(hp.rms_eps)
    writer.add_rope_freq_base(hp.rope_base)
    writer.add_rope_dimension_count(hp.rope_dim)
    if not hp.is_hybrid:
        return
    interval = hp.block_is_attention.index(True) + 1
    writer.add_rope_dimension_sections(list(hp.rope_sections))
    writer.add_ssm_conv_kernel(hp.conv_kernel)
    writer.add_ssm_state_size(hp.gdn_dim)
    writer.add_ssm_group_count(hp.n_gdn_head_k)
    writer.add_ssm_time_step_rank(hp.n_gdn_head_v)
    writer.add_ssm_inner_size(hp.gdn_value_width)
    writer.add_uint32(f"{hp.arch}.full_attention_interval", interval)
    writer.add_uint32(f"{hp.arch}.nextn_predict_layers", hp.n_nextn)


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_uint32(key, value)


def summary(hp: Hyperparams, tensors: list[Tensor]) -> dict[str, Any]:
    """Sizes, among them the bytes that a decoded token must read: trunk and head, or MTP block and head."""
    parts: Counter[str] = Counter()
    types: Counter[str] = Counter()
    for tensor in tensors:
        types[tensor.kind.name] += tensor.n_bytes
        stem = tensor.name.split(".")
        part = ("trunk" if int(stem[1]) < hp.n_block else "mtp") if stem[0] == "blk" else stem[0]
        parts[part] += tensor.n_bytes
    n_attention = sum(hp.block_is_attention)
    state = hp.gdn_dim * hp.gdn_value_width + (hp.conv_kernel - 1) * hp.conv_width
    return {
        "tensors": len(tensors),
        "parameters": sum(math.prod(tensor.shape) for tensor in tensors),
        "bytes_total": types.total(),
        "bytes_by_type": dict(types),
        "bytes_by_part": dict(parts),
        "bytes_read_per_trunk_step": parts["trunk"] + parts["output"],
        "bytes_read_per_draft_step": parts["mtp"] + parts["output"],
        "kv_bytes_per_token_q8_0": n_attention * 2 * hp.n_head_kv * hp.head_dim * 34 // 32,
        "recurrent_state_bytes_per_sequence": (hp.n_block - n_attention) * 4 * state,
    }


@click.command(help=__doc__.splitlines()[0] if __doc__ else None)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--preset", type=click.Choice(list(PRESETS)), default="27b", show_default=True)
@click.option("--type", "type_name", type=click.Choice(list(FILE_TYPES)), default=MIXED_TYPE, show_default=True)
@click.option("--vocab", type=int, help="Vocabulary size; default: the preset's.")
@click.option("--context", type=int, help="Context length in the metadata; default: the preset's.")
@click.option("--tokenizer-from", type=click.Path(exists=True), help="Copy this GGUF's tokenizer.")
@click.option("--chat-template", type=click.File(encoding="utf-8"), help="Chat template (Jinja) to store.")
@click.option("--name", help="general.name")
@click.option("--seed", default=1, show_default=True)
@click.option("--list", "only_list", is_flag=True, help="Print the tensors and sizes, write nothing.")
def main(
    out: Path, preset: str, type_name: str, vocab: int | None, context: int | None, tokenizer_from: str | None,
    chat_template: Any, name: str | None, seed: int, only_list: bool,
) -> None:  # fmt: skip
    hp = PRESETS[preset]
    hp = replace(hp, n_vocab=vocab or hp.n_vocab, n_ctx_train=context or hp.n_ctx_train)
    if only_list:
        tensors = tensor_table(hp, type_name)
        for tensor in tensors:
            click.echo(f"{tensor.name:38s} {tensor.shape!s:18s} {tensor.kind.name:5s} {tensor.n_bytes:>13,d}")
        click.echo(json.dumps(summary(hp, tensors), indent=1))
        return
    start = time.monotonic()
    template = chat_template.read() if chat_template else None
    tensors = write_synthetic(
        out, hp, type_name=type_name, tokenizer_from=tokenizer_from, chat_template=template, name=name, seed=seed
    )
    click.echo(json.dumps(summary(hp, tensors)))
    print(f"wrote {out} in {time.monotonic() - start:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
