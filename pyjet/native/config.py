"""Sizes and types of an engine, by name; numbers of the C enumerations stay in here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyjet.native import structs
from pyjet.native.library import NativeError

Device = Literal["cpu", "cuda"]
Isa = Literal["auto", "portable", "avx2", "avx512_vnni"]
KvType = Literal["f16", "q8_0"]

DEVICES: tuple[str, ...] = ("cpu", "cuda")
ISAS: tuple[str, ...] = ("auto", "portable", "avx2", "avx512_vnni")
KV_TYPES: tuple[str, ...] = ("f16", "q8_0")
ERR_ARGUMENT = 1
ERR_MODEL = 2
ERR_MEMORY = 3
ERR_DEVICE = 4


@dataclass(frozen=True)
class EngineConfig:
    """What pj_engine_create needs besides the model. Counts of tokens, pages, slots and rows."""

    n_pages: int
    n_state_slots: int
    device: Device = "cpu"
    device_index: int = 0
    isa: Isa = "auto"
    n_threads: int = 0  # <= 0: all hardware threads
    page_tokens: int = 64
    max_rows: int = 512
    max_seqs: int = 0  # <= 0: one per state slot
    max_spec: int = 0
    kv_type_k: KvType = "f16"
    kv_type_v: KvType = "f16"
    profile: bool = False
    max_draft: int = 0  # most MTP drafts of a sequence and step, up to structs.MAX_DRAFT
    draft_vocab: int = 0  # drafts are chosen among the ids below it; <= 0: among all

    @property
    def n_seqs(self) -> int:
        return self.max_seqs if self.max_seqs > 0 else self.n_state_slots

    def to_c(self) -> structs.Config:
        """pj_config without the progress callback."""
        return structs.Config(
            abi_version=structs.ABI_VERSION,
            device=number_of("device", self.device, DEVICES),
            device_index=self.device_index,
            isa=number_of("isa", self.isa, ISAS),
            n_threads=self.n_threads,
            page_tokens=self.page_tokens,
            n_pages=self.n_pages,
            n_state_slots=self.n_state_slots,
            max_rows=self.max_rows,
            max_seqs=self.n_seqs,
            max_spec=self.max_spec,
            kv_type_k=number_of("kv_type_k", self.kv_type_k, KV_TYPES),
            kv_type_v=number_of("kv_type_v", self.kv_type_v, KV_TYPES),
            profile=int(self.profile),
            max_draft=self.max_draft,
            draft_vocab=self.draft_vocab,
        )


def number_of(field: str, name: str, names: tuple[str, ...]) -> int:
    """Index of ``name``; NativeError lists the names that exist."""
    if name not in names:
        raise NativeError(ERR_ARGUMENT, f"{field} {name!r} is unknown; use one of {', '.join(names)}")
    return names.index(name)
