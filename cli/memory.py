"""How much memory a model needs: weights, KV pages and recurrent states. Bytes unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from pyjet.model.hyperparams import Hyperparams
from pyjet.model.reader import Model

GIB = 1 << 30
KV_ELEMENT_BYTES = {"f16": 2.0, "q8_0": 34 / 32}  # q8_0: 32 bytes and one f16 scale for 32 values


@dataclass(frozen=True)
class Footprint:
    """Memory of a model on a device."""

    weights: int
    kv_per_token: dict[str, int]  # KV type -> keys and values of all attention blocks
    state_per_slot: int

    def total(self, tokens: int, slots: int, kv_type: str) -> int:
        """Weights, `tokens` of KV in the shared pool and the states of `slots` sequences."""
        return self.weights + slots * self.state_per_slot + tokens * self.kv_per_token[kv_type]

    def tokens_that_fit(self, budget: int, slots: int, kv_type: str) -> int:
        """KV tokens that `budget` holds beside weights and states; 0 when these alone are too large."""
        left = budget - self.total(0, slots, kv_type)
        return max(0, left // self.kv_per_token[kv_type])


def footprint(model: Model) -> Footprint:
    """From the file's tensors and hyperparameters; workspace and the driver's own memory are not in it."""
    hp = model.hyperparams
    return Footprint(
        weights=model.tensor_bytes,
        kv_per_token={name: kv_bytes_per_token(hp, name) for name in KV_ELEMENT_BYTES},
        state_per_slot=state_bytes_per_slot(hp),
    )


def kv_bytes_per_token(hp: Hyperparams, kv_type: str) -> int:
    """Keys and values of one position in every full-attention block, the MTP block included."""
    blocks = sum(hp.block_is_attention) + hp.n_nextn
    return int(blocks * 2 * hp.n_head_kv * hp.head_dim * KV_ELEMENT_BYTES[kv_type])


def state_bytes_per_slot(hp: Hyperparams) -> int:
    """GDN states (f32, one square matrix per value head) and convolution windows of one sequence; 0 without GDN."""
    blocks = len(hp.block_is_attention) - sum(hp.block_is_attention)
    channels = (2 * hp.n_gdn_head_k + hp.n_gdn_head_v) * hp.gdn_dim
    return blocks * 4 * (hp.n_gdn_head_v * hp.gdn_dim**2 + (hp.conv_kernel - 1) * channels)


def human(n_bytes: float) -> str:
    """"17.1 GiB", "22.1 MiB", "34.0 KiB"."""
    for unit, size in (("GiB", GIB), ("MiB", 1 << 20)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes / 1024:.1f} KiB"
