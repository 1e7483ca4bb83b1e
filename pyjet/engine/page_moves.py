"""Pages between the device and blocks of the host, as few copies as the blocks' places allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyjet.engine.device_memory import DeviceMemory, UInt8Array
from pyjet.engine.host_store import HostBlock


def read_pages(memory: DeviceMemory, pages: Sequence[int], blocks: Sequence[HostBlock]) -> None:
    """Copy each page to its block."""
    for run, data in _runs(pages, blocks):
        memory.pages_read(run, data)


def write_pages(memory: DeviceMemory, pages: Sequence[int], blocks: Sequence[HostBlock]) -> None:
    """Copy each block to its page."""
    for run, data in _runs(pages, blocks):
        memory.pages_write(run, data)


def _runs(pages: Sequence[int], blocks: Sequence[HostBlock]) -> Iterator[tuple[list[int], UInt8Array]]:
    """Pages whose blocks lie side by side, with the memory of these blocks: uint8[n, page_bytes]."""
    order = sorted(range(len(pages)), key=lambda i: (id(blocks[i].arena), blocks[i].index))
    begin = 0
    for end in range(1, len(order) + 1):
        first, before = blocks[order[begin]], blocks[order[end - 1]]
        if end < len(order):
            block = blocks[order[end]]
            if block.arena is before.arena and block.index == before.index + 1:
                continue
        size = first.arena.block_bytes
        data = first.arena.data[first.index * size : (before.index + 1) * size].reshape(-1, size)
        yield [pages[i] for i in order[begin:end]], data
        begin = end
