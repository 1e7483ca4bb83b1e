"""A computed prefix as plain arrays: out of the prefix cache and into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyjet.engine.device_memory import DeviceMemory, UInt8Array
from pyjet.engine.prefix_tree import KeptPage, Place, Tokens


@dataclass(frozen=True)
class Snapshot:
    """``pages`` uint8[n, page_bytes] cover ``tokens`` int32[n_tokens]; ``state``: the recurrent one then, if any."""

    tokens: Tokens
    pages: UInt8Array
    state: UInt8Array


def take_snapshot(memory: DeviceMemory, tokens: Tokens, place: Place) -> Snapshot:
    """Copies of all that one needs to go on at a place. ``tokens`` are those before it."""
    kept, checkpoint = place.pages, place.checkpoint
    pages = np.empty((len(kept), memory.page_bytes), np.uint8)
    for data, page in zip(pages, kept):
        _read(memory, page, data)
    if not memory.state_bytes:
        state = np.empty(0, np.uint8)
    elif checkpoint.state_host is not None:
        state = checkpoint.state_host.data[: memory.state_bytes].copy()
    else:
        state = memory.state_read(checkpoint.state_slot)
    return Snapshot(tokens.copy(), pages, state)


def _read(memory: DeviceMemory, page: KeptPage, out: UInt8Array) -> None:
    if page.host is not None:
        out[:] = page.host.data
    else:
        memory.pages_read([page.page], out[None])
