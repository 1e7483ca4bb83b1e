"""What it takes to start an engine: the model file and every size, in one picklable object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyjet.engine.client import STEP_BUDGET, EngineLimits
from pyjet.engine.speculation_settings import DRAFT_BLOCK, NO_SPECULATION, SpeculationSettings
from pyjet.native.config import Device, EngineConfig, Isa, KvType

MIB = 1 << 20
# Rows at the end of a prompt that may leave the state before them; a ChatML answer starts with at most so many tokens.
MAX_TAIL = 7


@dataclass(frozen=True)
class EngineSettings:
    """Sizes in tokens. The pool is ``n_ctx_total``; each slot may use up to ``n_ctx_slot`` of it."""

    model_path: str
    n_slots: int = 4
    n_ctx_slot: int = 4096
    n_ctx_total: int = 16384
    n_ubatch: int = 512  # rows of one step at most
    page_tokens: int = 64
    device: Device = "cpu"
    device_index: int = 0
    isa: Isa = "auto"
    n_threads: int = 0
    kv_type_k: KvType = "f16"
    kv_type_v: KvType = "f16"
    profile: bool = False
    cache_ram: int = 8192  # MiB of host memory for pages and states that left the device; -1: no limit
    max_checkpoints: int = 128  # recurrent states that are kept for prompts to come
    checkpoint_step: int = 8192  # tokens between two of them inside a long prompt
    slot_similarity: float = 0.1  # share of a prompt that an idle slot must hold to be chosen for it
    step_budget: float = STEP_BUDGET  # a step with prompt rows may take so many times as long as one that only decodes
    patience_seconds: float = 120.0  # a step that takes longer hangs, unless steps are known to be slow
    calibrate: bool = True  # measure steps at load; one request alone needs no prices
    speculation: SpeculationSettings = NO_SPECULATION
    overrides: dict[str, Any] = field(default_factory=dict)  # GGUF metadata, --override-kv
    check_tensors: bool = False

    def __post_init__(self) -> None:
        for name in ("n_slots", "n_ctx_slot", "n_ctx_total", "n_ubatch", "page_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def max_rows(self) -> int:
        """Every slot can decode in the same step, however small the micro-batch.

        On a GPU short prompts that come together share a step of twice the size: it reads the weights once.
        """
        return max(2 * self.n_ubatch if self.device == "cuda" else self.n_ubatch, self.n_slots)

    @property
    def n_pages(self) -> int:
        """Pages for n_ctx_total tokens; whole pages per slot, so that slots which fit in tokens also fit in pages."""
        per_slot = -(-self.n_ctx_slot // self.page_tokens)
        total = -(-self.n_ctx_total // self.page_tokens)
        return max(total, per_slot * self.n_slots) if self.n_ctx_slot * self.n_slots <= self.n_ctx_total else total

    def limits(self, n_vocab: int) -> EngineLimits:
        return EngineLimits(
            n_slots=self.n_slots,
            n_ctx_slot=self.n_ctx_slot,
            n_ctx_total=self.n_pages * self.page_tokens,
            n_vocab=n_vocab,
            max_rows=self.max_rows,
            chunk_rows=max(self.n_ubatch, self.n_slots),
            page_tokens=self.page_tokens,
            n_extra_states=self.n_extra_states,
            host_bytes=None if self.cache_ram < 0 else self.cache_ram * MIB,
            max_checkpoints=self.max_checkpoints,
            checkpoint_step=self.checkpoint_step,
            max_spec=MAX_TAIL,
            slot_similarity=self.slot_similarity,
            layout=f"{self.device} {self.kv_type_k} {self.kv_type_v}",
            step_budget=self.step_budget,
            patience_seconds=self.patience_seconds,
            speculation=self.speculation,
        )

    @property
    def n_extra_states(self) -> int:
        """One for every four slots: a state that stays on the device is given back in no time, but is large."""
        return max(1, self.n_slots // 4)

    def engine_config(self) -> EngineConfig:
        return EngineConfig(
            n_pages=self.n_pages,
            n_state_slots=self.n_slots + self.n_extra_states,
            max_seqs=self.n_slots,
            max_spec=MAX_TAIL,
            device=self.device,
            device_index=self.device_index,
            isa=self.isa,
            n_threads=self.n_threads,
            page_tokens=self.page_tokens,
            max_rows=self.max_rows,
            kv_type_k=self.kv_type_k,
            kv_type_v=self.kv_type_v,
            profile=self.profile,
            max_draft=self.speculation.max_draft,
            draft_vocab=self.speculation.first_blocks * DRAFT_BLOCK,
        )
