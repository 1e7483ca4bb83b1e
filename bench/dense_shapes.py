"""Shapes of dense models that bench.make_synthetic_gguf writes: attention in every block, nothing recurrent."""

from __future__ import annotations

from typing import Any

from pyjet.model.hyperparams import Hyperparams


def _shape(arch: str, n_block: int, *, head_dim: int, **sizes: Any) -> Hyperparams:
    return Hyperparams(
        arch=arch, n_block=n_block, n_nextn=0, head_dim=head_dim, rope_dim=head_dim, rope_sections=(), n_gdn_head_v=0,
        n_gdn_head_k=0, gdn_dim=0, conv_kernel=0, block_is_attention=(True,) * n_block, **sizes,
    )  # fmt: skip


#: The "micro" ones are for tests: every head width, groups of 2 to 16, and widths that are no multiple of 256.
DENSE_PRESETS = {
    "qwen3-8b": _shape("qwen3", 36, n_embd=4096, n_ff=12288, n_head=32, n_head_kv=8, head_dim=128, n_vocab=151936,
                       n_ctx_train=40960, rope_base=1e6, rms_eps=1e-6),
    "qwen2.5-7b": _shape("qwen2", 28, n_embd=3584, n_ff=18944, n_head=28, n_head_kv=4, head_dim=128, n_vocab=152064,
                         n_ctx_train=32768, rope_base=1e6, rms_eps=1e-6),
    "llama3-8b": _shape("llama", 32, n_embd=4096, n_ff=14336, n_head=32, n_head_kv=8, head_dim=128, n_vocab=128256,
                        n_ctx_train=131072, rope_base=5e5, rms_eps=1e-5),
    "micro-qwen3": _shape("qwen3", 2, n_embd=256, n_ff=512, n_head=8, n_head_kv=2, head_dim=128, n_vocab=320,
                          n_ctx_train=4096, rope_base=1e6, rms_eps=1e-6),
    "micro-qwen3-256": _shape("qwen3", 2, n_embd=256, n_ff=256, n_head=4, n_head_kv=2, head_dim=256, n_vocab=320,
                              n_ctx_train=4096, rope_base=1e6, rms_eps=1e-6),
    "micro-qwen2": _shape("qwen2", 2, n_embd=768, n_ff=512, n_head=12, n_head_kv=6, head_dim=64, n_vocab=320,
                          n_ctx_train=4096, rope_base=1e6, rms_eps=1e-6),
    "micro-llama": _shape("llama", 2, n_embd=320, n_ff=448, n_head=5, n_head_kv=1, head_dim=64, n_vocab=333,
                          n_ctx_train=4096, rope_base=5e5, rms_eps=1e-5),
    "micro-llama-16": _shape("llama", 2, n_embd=192, n_ff=192, n_head=16, n_head_kv=1, head_dim=64, n_vocab=320,
                             n_ctx_train=4096, rope_base=5e5, rms_eps=1e-5),
}  # fmt: skip


def left_out(hp: Hyperparams) -> tuple[str, ...]:
    """Parts of the names of tensors that the architecture allows and real files do not have."""
    if hp.arch == "qwen2":
        return ("attn_output.bias", "rope_freqs")
    return (".bias",) if hp.arch == "llama" else (".bias", "rope_freqs")
