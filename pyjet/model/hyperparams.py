"""The sizes of a model, read from GGUF metadata and checked against each other."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyjet.model.errors import ModelError

HYBRID = "qwen35"
#: Attention in every block. llama files store q and k rotated in pairs of neighbours, the others in halves.
DENSE = ("qwen3", "qwen2", "llama")
ARCHITECTURES = (HYBRID, *DENSE)
_PAIRED_ROPE = ("llama",)
_NO_DELTA_NET = {"gdn_dim": 0, "n_gdn_head_v": 0, "n_gdn_head_k": 0, "conv_kernel": 0}
_MAX_POSITION = (1 << 31) - 1


@dataclass(frozen=True)
class Hyperparams:
    """Sizes of one model; widths and counts are elements, never bytes. Sizes of what a model lacks are 0."""

    arch: str
    n_block: int  # trunk blocks; the MTP block is not counted
    n_nextn: int  # MTP blocks after the trunk: 0 or 1
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    rope_dim: int
    rope_sections: tuple[int, ...]  # pairs of time, height, width, extra; interleaved. (): plain rope
    rope_base: float
    rms_eps: float
    n_gdn_head_v: int
    n_gdn_head_k: int
    gdn_dim: int  # the state of a value head is gdn_dim x gdn_dim
    conv_kernel: int
    n_vocab: int
    n_ctx_train: int
    block_is_attention: tuple[bool, ...]  # n_block entries; False = gated delta net

    @property
    def is_hybrid(self) -> bool:
        """Gated attention and gated delta nets side by side; otherwise plain attention in every block."""
        return self.arch == HYBRID

    @property
    def has_state(self) -> bool:
        """Whether a sequence has a recurrent state besides its keys and values."""
        return not all(self.block_is_attention)

    @property
    def rope_in_pairs(self) -> bool:
        """Rope rotates dimensions (2i, 2i + 1); otherwise (i, i + rope_dim / 2)."""
        return self.arch in _PAIRED_ROPE

    @property
    def gdn_value_width(self) -> int:
        return self.n_gdn_head_v * self.gdn_dim

    @property
    def conv_width(self) -> int:
        """Channels of the causal convolution: q, k and v of the gated delta net."""
        return 2 * self.n_gdn_head_k * self.gdn_dim + self.gdn_value_width

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tensors: Collection[str]) -> Hyperparams:
        """Read and check every hyperparameter; `tensors` are the names in the file.

        Raises ModelError naming the key when one is missing, of the wrong type, out of range or at odds with another.
        """
        keys = _Keys(metadata, _architecture(metadata))
        hybrid = keys.arch == HYBRID
        if not hybrid:
            _check_dense(keys)
        n_all = keys.integer("block_count", 1, 512)
        n_nextn = keys.integer("nextn_predict_layers", 0, 1, default=0)
        n_block = n_all - n_nextn
        if n_block < 1:
            raise keys.fail("block_count", f"{n_all} leaves no trunk block beside {n_nextn} MTP block(s)")
        if n_nextn and not any(name.startswith(f"blk.{n_block}.") for name in tensors):
            n_nextn = 0  # announced, but stripped from the file: the trunk works alone
        n_embd = keys.integer("embedding_length", 16, 1 << 16)
        hp = cls(
            arch=keys.arch,
            n_block=n_block,
            n_nextn=n_nextn,
            n_embd=n_embd,
            n_ff=keys.uniform("feed_forward_length", 16, 1 << 20),
            n_vocab=_vocabulary_size(metadata),
            n_ctx_train=keys.integer("context_length", 1, _MAX_POSITION),
            rms_eps=keys.number("attention.layer_norm_rms_epsilon", 1e-12, 1e-1),
            block_is_attention=_block_kinds(keys, n_block, n_all) if hybrid else (True,) * n_block,
            **_attention(keys, n_embd),
            **(_delta_net(keys) if hybrid else _NO_DELTA_NET),
        )
        return hp


class _Keys:
    """Typed access to the metadata of one architecture."""

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self.metadata = metadata
        self.arch = arch

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.arch}.{key}", default)

    def fail(self, key: str, message: str) -> ModelError:
        return ModelError(f"metadata key '{self.arch}.{key}': {message}")

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        return self._check_integer(key, self.get(key, default), low, high)

    def uniform(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A size that may be stored once or per block; blocks without it store 0."""
        value = self.get(key, default)
        if isinstance(value, list):
            sizes = {item for item in value if item != 0}
            if len(sizes) != 1:
                raise self.fail(key, f"differs from block to block ({value[:16]}); one size for all blocks works")
            value = sizes.pop()
        return self._check_integer(key, value, low, high)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        value = self.get(key, default)
        if value is None:
            raise self.fail(key, "is missing; convert the model again with a current converter")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, f"is {value!r}, expected a number")
        if not math.isfinite(value) or not low <= value <= high:
            raise self.fail(key, f"is {value}, expected {low} to {high}")
        return float(value)

    def _check_integer(self, key: str, value: Any, low: int, high: int) -> int:
        if value is None:
            raise self.fail(key, "is missing; convert the model again with a current converter")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, f"is {value!r}, expected an integer")
        if not low <= value <= high:
            raise self.fail(key, f"is {value}, expected {low} to {high}")
        return value


def _architecture(metadata: Mapping[str, Any]) -> str:
    arch = metadata.get("general.architecture")
    if arch is None:
        raise ModelError("metadata key 'general.architecture' is missing; a GGUF model file states it")
    if arch not in ARCHITECTURES:
        raise ModelError(
            f"general.architecture is {arch!r}; pyjet runs {', '.join(map(repr, ARCHITECTURES))} (dense models of the "
            "Qwen3.5, Qwen3, Qwen2.5 and Llama families)"
        )
    return str(arch)


def _vocabulary_size(metadata: Mapping[str, Any]) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], str):
        raise ModelError("metadata key 'tokenizer.ggml.tokens' is missing or not a list of strings; a model needs it")
    return len(tokens)


def _block_kinds(keys: _Keys, n_block: int, n_all: int) -> tuple[bool, ...]:
    """Which trunk blocks are full attention: an explicit list, or every n-th."""
    recurrent = keys.get("attention.recurrent_layers")
    if recurrent is None:
        interval = keys.integer("full_attention_interval", 1, 512, default=4)
        return tuple((index + 1) % interval == 0 for index in range(n_block))
    if not isinstance(recurrent, list) or len(recurrent) != n_all:
        raise keys.fail("attention.recurrent_layers", f"expected a list with one entry for each of {n_all} blocks")
    return tuple(not item for item in recurrent[:n_block])


def _attention(keys: _Keys, n_embd: int) -> dict[str, Any]:
    n_head = keys.uniform("attention.head_count", 1, 1024)
    n_head_kv = keys.uniform("attention.head_count_kv", 1, 1024, default=n_head)
    if n_head % n_head_kv:
        raise keys.fail("attention.head_count_kv", f"{n_head_kv} does not divide the {n_head} query heads")
    head_dim = keys.integer("attention.key_length", 16, 1024, default=n_embd // n_head)
    value_dim = keys.integer("attention.value_length", 16, 1024, default=n_embd // n_head)
    if head_dim % 16:
        raise keys.fail("attention.key_length", f"{head_dim} is not a multiple of 16")
    if value_dim != head_dim:
        raise keys.fail("attention.value_length", f"{value_dim} differs from the key length {head_dim}")
    rope_dim = keys.integer("rope.dimension_count", 2, head_dim, default=head_dim)
    if rope_dim % 2:
        raise keys.fail("rope.dimension_count", f"{rope_dim} is odd; rope rotates pairs")
    _check_rope_scaling(keys)
    return {
        "n_head": n_head,
        "n_head_kv": n_head_kv,
        "head_dim": head_dim,
        "rope_dim": rope_dim,
        "rope_sections": _rope_sections(keys, rope_dim) if keys.arch == HYBRID else (),
        "rope_base": keys.number("rope.freq_base", 1.0, 1e12, default=10000.0),
    }


def _rope_sections(keys: _Keys, rope_dim: int) -> tuple[int, ...]:
    """Interleaved sections under which text (equal time, height and width positions) is ordinary rope.

    Pair p belongs to component p % 3 (time, height, width) while p < 3 x that component's section, otherwise to
    the fourth component, whose position is 0 in text: such pairs would not be rotated at all.
    """
    key = "rope.dimension_sections"
    sections = keys.get(key)
    if not isinstance(sections, list) or len(sections) > 4 or not all(_is_size(item) for item in sections):
        raise keys.fail(key, f"is {sections!r}, expected up to four sizes such as [11, 11, 10, 0]")
    padded = tuple([*sections, 0, 0, 0, 0][:4])
    total = sum(padded)
    covered = total and all(pair % total < 3 * padded[pair % total % 3] for pair in range(rope_dim // 2))
    if not covered:
        raise keys.fail(key, f"{sections} leaves some of the {rope_dim // 2} rope pairs without a text position")
    return padded


def _is_size(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= 1024


def _check_rope_scaling(keys: _Keys) -> None:
    kind = keys.get("rope.scaling.type", "linear")
    factor = keys.number("rope.scaling.factor", 0.0, 1e6, default=keys.number("rope.scale_linear", 0.0, 1e6, 1.0))
    if kind not in ("none", "linear") or (kind == "linear" and factor not in (0.0, 1.0)):
        raise keys.fail("rope.scaling.type", f"{kind!r} with factor {factor} is not supported; unscaled rope works")


def _check_dense(keys: _Keys) -> None:
    """Raise for what files of a dense architecture may ask for and no engine here does."""
    experts = keys.integer("expert_count", 0, 1 << 16, default=0)
    if experts:
        raise keys.fail("expert_count", f"{experts} experts are not supported; dense models work")
    if keys.integer("nextn_predict_layers", 0, 1 << 16, default=0):
        raise keys.fail("nextn_predict_layers", f"MTP blocks of {keys.arch} models are not supported")
    if keys.get("attention.causal", True) is not True:
        raise keys.fail("attention.causal", "models that see the tokens after a position are not supported")
    if keys.number("attention.scale", -1e6, 1e6, default=0.0):
        raise keys.fail("attention.scale", "is set; scores are scaled by 1 / sqrt(head width) here")


def _delta_net(keys: _Keys) -> dict[str, Any]:
    gdn_dim = keys.integer("ssm.state_size", 16, 1024)
    n_value = keys.integer("ssm.time_step_rank", 1, 1024)
    n_key = keys.integer("ssm.group_count", 1, 1024)
    inner = keys.integer("ssm.inner_size", 16, 1 << 20)
    if gdn_dim % 16:
        raise keys.fail("ssm.state_size", f"{gdn_dim} is not a multiple of 16")
    if n_value % n_key:
        raise keys.fail("ssm.group_count", f"{n_key} key heads do not divide the {n_value} value heads")
    if inner != gdn_dim * n_value:
        raise keys.fail("ssm.inner_size", f"{inner} is not ssm.state_size x ssm.time_step_rank = {gdn_dim} x {n_value}")
    return {
        "gdn_dim": gdn_dim,
        "n_gdn_head_v": n_value,
        "n_gdn_head_k": n_key,
        "conv_kernel": keys.integer("ssm.conv_kernel", 2, 16),
    }
