"""Host memory for pages and states that left the device: equal arenas, each cut into blocks of one kind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from pyjet.engine.device_memory import UInt8Array
from pyjet.native.library import NativeError

log = logging.getLogger(__name__)
PAGES_OF_AN_ARENA = 16  # at least: few pages more or less must not allocate memory each time


@dataclass(eq=False)
class Arena:
    """One allocation. ``block_bytes`` is 0 while it is empty and may serve either kind."""

    data: UInt8Array
    block_bytes: int = 0
    free: list[int] = field(default_factory=list)  # block numbers, the lowest last


@dataclass(frozen=True, eq=False)
class HostBlock:
    """Room for one page or one state."""

    arena: Arena
    index: int

    @property
    def data(self) -> UInt8Array:
        size = self.arena.block_bytes
        return self.arena.data[self.index * size : (self.index + 1) * size]


class HostStore:
    """Blocks of ``page_bytes`` or ``state_bytes``, of at most ``budget`` bytes in all (None: no limit).

    Arenas are kept once they are allocated: pinned memory is slow to get, 0.1 s for 150 MB. One without blocks in use
    may change its kind.
    """

    def __init__(
        self, budget: int | None, page_bytes: int, state_bytes: int, allocate: Callable[[int], UInt8Array]
    ) -> None:
        self._page_bytes = page_bytes
        self._state_bytes = max(1, state_bytes)  # a model without recurrent layers still has checkpoints
        self._arena_bytes = max(self._state_bytes, PAGES_OF_AN_ARENA * page_bytes)
        self._allocate = allocate
        self._most_arenas = None if budget is None else budget // self._arena_bytes
        self._arenas: list[Arena] = []
        self.bytes_used = 0

    @property
    def bytes_allocated(self) -> int:
        return len(self._arenas) * self._arena_bytes

    def take_page(self) -> HostBlock | None:
        """A block for a page; None when the budget is used up."""
        return self._take(self._page_bytes)

    def take_state(self) -> HostBlock | None:
        """A block for a recurrent state; None when the budget is used up."""
        return self._take(self._state_bytes)

    def spare_state(self) -> HostBlock | None:
        """The same in memory that is allocated already."""
        arena = self._arena_with_room(self._state_bytes)
        return None if arena is None else self._take_from(arena, self._state_bytes)

    def allocate_ahead(self, n_bytes: int) -> bool:
        """Allocate one arena more while nobody waits for it; False: there are ``n_bytes``, or all there may be."""
        return self.bytes_allocated + self._arena_bytes <= n_bytes and self._new_arena() is not None

    def free(self, block: HostBlock) -> None:
        arena = block.arena
        arena.free.append(block.index)
        self.bytes_used -= arena.block_bytes
        if len(arena.free) == self._arena_bytes // arena.block_bytes:
            arena.block_bytes = 0

    def _take(self, size: int) -> HostBlock | None:
        arena = self._arena_with_room(size) or self._new_arena()
        return None if arena is None else self._take_from(arena, size)

    def _arena_with_room(self, size: int) -> Arena | None:
        """One of blocks of that size, else an empty one."""
        begun = next((a for a in self._arenas if a.block_bytes == size and a.free), None)
        return begun or next((a for a in self._arenas if not a.block_bytes), None)

    def _take_from(self, arena: Arena, size: int) -> HostBlock:
        if not arena.block_bytes:
            arena.block_bytes = size
            arena.free = list(range(self._arena_bytes // size - 1, -1, -1))
        self.bytes_used += size
        return HostBlock(arena, arena.free.pop())

    def _new_arena(self) -> Arena | None:
        if self._most_arenas is not None and len(self._arenas) >= self._most_arenas:
            return None
        try:
            arena = Arena(self._allocate(self._arena_bytes))
        except NativeError as error:
            # The engine goes on with what there is; states and pages that find no place are computed again.
            log.warning("host memory for prompts ends at %d MiB: %s", self.bytes_allocated >> 20, error.message)
            self._most_arenas = len(self._arenas)
            return None
        self._arenas.append(arena)
        return arena
