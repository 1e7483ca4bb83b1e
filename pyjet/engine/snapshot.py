"""A computed prefix as plain arrays: out of the prefix cache and into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyjet.engine.device_memory import DeviceMemory, UInt8Array
from pyjet.engine.prefix_tree import Checkpoint, KeptPage, Tokens


@dataclass(frozen=True)
class Snapshot:
    """``pages`` uint8[n, page_bytes] cover ``tokens`` int32[n_tokens]; ``state`` is the recurrent one after them."""

    tokens: Tokens
    pages: UInt8Array
    state: UInt8Array


def take_snapshot(memory: DeviceMemory, tokens: Tokens, checkpoint: Checkpoint) -> Snapshot:
    """Copies of all that a checkpoint stands for. ``tokens`` are its own."""
    kept = checkpoint.pages
    pages = np.empty((len(kept), memory.page_bytes), np.uint8)
    for data, page in zip(pages, kept):
        _read(memory, page, data)
    if checkpoint.state_host is not None:
        state = checkpoint.state_host.data[: memory.state_bytes].copy()
    else:
        state = memory.state_read(checkpoint.state_slot)
    return Snapshot(tokens.copy(), pages, state)


def _read(memory: DeviceMemory, page: KeptPage, out: UInt8Array) -> None:
    if page.host is not None:
        out[:] = page.host.data
    else:
        memory.pages_read([page.page], out[None])
