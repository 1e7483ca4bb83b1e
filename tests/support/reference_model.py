"""The architectures in plain numpy, float64, token by token: what every backend's numbers are judged by.

Written from the published formulas, not from the engine: gated full attention (Qiu et al., "Gated Attention for Large
Language Models", 2025), Gated DeltaNet (Yang et al., 2024, eq. 10) as the token recurrence, RMSNorm (Zhang and
Sennrich, 2019), SwiGLU (Shazeer, 2020), rotary embedding in half-split layout (Su et al., 2021) and a multi-token
prediction block (DeepSeek-V3 report, 2024, sec. 2.2). Nothing is rounded unless asked for: ReferenceModel can store K
and V in half precision and feed quantised weights with int8 activations, so that only float32 rounding remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from pyjet.model.reader import Model

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Forward:
    """Trunk outputs of T tokens: hidden [T, n_embd] after the final norm, logits [T, n_vocab]."""

    hidden: Array
    logits: Array


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def round_int8(x: Array, span: int) -> Array:
    """Each ``span`` values become integers times (largest magnitude / 127); spans of 32 keep that scale in float16."""
    groups = x.reshape(*x.shape[:-1], -1, span)
    scale = np.abs(groups).max(axis=-1, keepdims=True) / 127.0
    integers = np.rint(groups / np.where(scale > 0, scale, 1.0))
    if span == 32:
        scale = scale.astype(np.float16).astype(np.float64)
    return (integers * scale).reshape(x.shape)


class ReferenceModel:
    """Forward passes of one sequence from position 0.

    half_kv: K and V are rounded to float16. int8_inputs: the inputs of quantised matrices are rounded to int8, one
    scale per block of the weight type. Weights are dequantised anew at every use: slow, but little memory.
    """

    def __init__(self, model: Model, *, half_kv: bool = False, int8_inputs: bool = False) -> None:
        self._tensors = model.tensors
        self.hp = model.hyperparams
        self._half_kv, self._int8_inputs = half_kv, int8_inputs

    def weight(self, name: str) -> Array:
        """Values of a tensor; a matrix is [n_out, n_in]."""
        tensor = self._tensors[name]
        kind = GGMLQuantizationType(tensor.type)
        rows = tensor.data.reshape(*reversed(tensor.shape[1:]), -1)
        values = dequantize(rows.view(np.float32) if kind.name == "F32" else rows, kind)
        return values.reshape(tuple(reversed(tensor.shape))).astype(np.float64)

    def weight_or(self, name: str, other: str) -> Array:
        return self.weight(name if name in self._tensors else other)

    def linear(self, x: Array, name: str) -> Array:
        """x [..., n_in] times a weight matrix: [..., n_out]."""
        span = GGML_QUANT_SIZES[GGMLQuantizationType(self._tensors[name].type)][0]
        if self._int8_inputs and span > 1:
            x = round_int8(x, span)
        return x @ self.weight(name).T

    def head(self, x: Array, *names: str) -> Array:
        """Logits through the first of these tensors that the file has."""
        return self.linear(x, next(name for name in names if name in self._tensors))

    def stored(self, x: Array) -> Array:
        """K or V as a page keeps it."""
        return x.astype(np.float16).astype(np.float64) if self._half_kv else x

    def norm(self, x: Array, weight: Array) -> Array:
        """RMSNorm over the last dimension."""
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.hp.rms_eps) * weight

    def trunk(self, tokens: npt.ArrayLike) -> Forward:
        """Tokens int[T] at positions 0..T-1."""
        x = self.weight("token_embd.weight")[np.asarray(tokens)]
        for index, is_attention in enumerate(self.hp.block_is_attention):
            x = self.block(x, f"blk.{index}.", is_attention)
        hidden = self.norm(x, self.weight("output_norm.weight"))
        return Forward(hidden, self.head(hidden, "output.weight", "token_embd.weight"))

    def mtp(self, tokens: npt.ArrayLike, hidden: Array) -> Forward:
        """The MTP block: row i sees tokens[i] and hidden[i], the trunk's hidden row of the position before it."""
        prefix = f"blk.{self.hp.n_block}."
        embedding = self.weight_or(prefix + "nextn.embed_tokens.weight", "token_embd.weight")[np.asarray(tokens)]
        e = self.norm(embedding, self.weight(prefix + "nextn.enorm.weight"))
        h = self.norm(hidden, self.weight(prefix + "nextn.hnorm.weight"))
        x = self.linear(np.concatenate([e, h], axis=-1), prefix + "nextn.eh_proj.weight")
        x = self.block(x, prefix, is_attention=True)
        out = self.norm(x, self.weight_or(prefix + "nextn.shared_head_norm.weight", "output_norm.weight"))
        heads = (prefix + "nextn.shared_head_head.weight", "output.weight", "token_embd.weight")
        return Forward(out, self.head(out, *heads))

    def block(self, x: Array, prefix: str, is_attention: bool) -> Array:
        mixer = self.attention if is_attention else self.delta_net
        x = x + mixer(self.norm(x, self.weight(prefix + "attn_norm.weight")), prefix)
        h = self.norm(x, self.weight(prefix + ("post_attention" if self.hp.is_hybrid else "ffn") + "_norm.weight"))
        gate, up = self.linear(h, prefix + "ffn_gate.weight"), self.linear(h, prefix + "ffn_up.weight")
        return x + self.linear(silu(gate) * up, prefix + "ffn_down.weight")

    def attention(self, h: Array, prefix: str) -> Array:
        """Causal attention with grouped heads and rope; norms, biases and a sigmoid output gate where there are."""
        hp, n = self.hp, len(h)
        q = self.biased(h, prefix + "attn_q").reshape(n, hp.n_head, -1)
        k = self.biased(h, prefix + "attn_k").reshape(n, hp.n_head_kv, hp.head_dim)
        v = self.biased(h, prefix + "attn_v").reshape(n, hp.n_head_kv, hp.head_dim)
        gate = sigmoid(q[..., hp.head_dim :]) if hp.is_hybrid else 1.0
        q = self.rope(self.norm_or_not(q[..., : hp.head_dim], prefix + "attn_q_norm.weight"))
        k = self.rope(self.norm_or_not(k, prefix + "attn_k_norm.weight"))
        group = hp.n_head // hp.n_head_kv
        k, v = np.repeat(self.stored(k), group, axis=1), np.repeat(self.stored(v), group, axis=1)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(hp.head_dim)
        scores[:, ~np.tri(n, dtype=bool)] = -np.inf
        out = np.einsum("hts,shd->thd", softmax(scores), v) * gate
        return self.biased(out.reshape(n, -1), prefix + "attn_output")

    def biased(self, x: Array, name: str) -> Array:
        out = self.linear(x, name + ".weight")
        return out + self.weight(name + ".bias") if name + ".bias" in self._tensors else out

    def norm_or_not(self, x: Array, name: str) -> Array:
        return self.norm(x, self.weight(name)) if name in self._tensors else x

    def rope(self, x: Array) -> Array:
        """x [T, heads, head_dim]: rotates pair i by position * base^(-2i/rope_dim), divided by rope_freqs if given.

        A pair is (i, i + rope_dim/2); of llama files (2i, 2i + 1), which is the former after a change of order.
        """
        half = self.hp.rope_dim // 2
        if self.hp.arch == "llama":
            pairs = np.arange(2 * half).reshape(half, 2)
            order = np.concatenate([pairs[:, 0], pairs[:, 1], np.arange(2 * half, x.shape[-1])])
            return self.rotated(x[..., order], half)[..., np.argsort(order)]
        return self.rotated(x, half)

    def rotated(self, x: Array, half: int) -> Array:
        frequency = self.hp.rope_base ** (-2.0 * np.arange(half) / self.hp.rope_dim)
        if "rope_freqs.weight" in self._tensors:
            frequency = frequency / self.weight("rope_freqs.weight")
        angle = (np.arange(len(x))[:, None] * frequency)[:, None, :]
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos, rest], axis=-1)

    def delta_net(self, h: Array, prefix: str) -> Array:
        """Gated DeltaNet: causal convolution, unit-length q and k, gated delta rule, gated norm."""
        hp, n = self.hp, len(h)
        key_width = hp.n_gdn_head_k * hp.gdn_dim
        mixed = silu(self.convolution(self.linear(h, prefix + "attn_qkv.weight"), prefix))
        q, k, v = np.split(mixed, [key_width, 2 * key_width], axis=1)
        heads = np.arange(hp.n_gdn_head_v) % hp.n_gdn_head_k  # the key head of each value head
        q = self.unit(q.reshape(n, hp.n_gdn_head_k, hp.gdn_dim))[:, heads] / np.sqrt(hp.gdn_dim)
        k = self.unit(k.reshape(n, hp.n_gdn_head_k, hp.gdn_dim))[:, heads]
        v = v.reshape(n, hp.n_gdn_head_v, hp.gdn_dim)
        beta = sigmoid(self.linear(h, prefix + "ssm_beta.weight"))
        step = np.logaddexp(0.0, self.linear(h, prefix + "ssm_alpha.weight") + self.weight(prefix + "ssm_dt.bias"))
        decay = np.exp(self.weight(prefix + "ssm_a") * step)
        out = self.delta_rule(q, k, v, beta, decay)
        z = self.linear(h, prefix + "attn_gate.weight").reshape(out.shape)
        out = self.norm(out, self.weight(prefix + "ssm_norm.weight")) * silu(z)
        return self.linear(out.reshape(n, -1), prefix + "ssm_out.weight")

    def convolution(self, x: Array, prefix: str) -> Array:
        """Depthwise, causal, zeros before the first token. x [T, channels], weight [channels, taps]."""
        weight = self.weight(prefix + "ssm_conv1d.weight")
        taps = weight.shape[1]
        padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])
        return sum(padded[t : t + len(x)] * weight[:, t] for t in range(taps))

    def unit(self, x: Array) -> Array:
        return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + self.hp.rms_eps)

    @staticmethod
    def delta_rule(q: Array, k: Array, v: Array, beta: Array, decay: Array) -> Array:
        """S = g S; S += k (beta (v - S^T k))^T; o = S^T q, from S = 0. q, k, v [T, heads, dim], gates [T, heads]."""
        state = np.zeros((*q.shape[1:], v.shape[2]))
        out = np.empty_like(v)
        for t in range(len(q)):
            state *= decay[t][:, None, None]
            delta = beta[t][:, None] * (v[t] - np.einsum("hij,hi->hj", state, k[t]))
            state += k[t][:, :, None] * delta[:, None, :]
            out[t] = np.einsum("hij,hi->hj", state, q[t])
        return out


def row_errors(actual: npt.NDArray[np.float32], expected: Array) -> Array:
    """[T]: a row's largest difference, as a fraction of the root mean square of all expected values."""
    return np.abs(actual - expected).max(axis=-1) / np.sqrt(np.mean(expected * expected))


def relative_error(actual: npt.NDArray[np.float32], expected: Array) -> float:
    return float(row_errors(actual, expected).max())
