"""What is kept for prompts to come, and who leaves when there is no room: pages, recurrent states, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyjet.engine.copy_times import CopyTimes
from pyjet.engine.device_memory import DeviceMemory
from pyjet.engine.free_memory import available_bytes
from pyjet.engine.host_store import HostBlock, HostStore
from pyjet.engine.page_moves import read_pages
from pyjet.engine.pages import PagePool
from pyjet.engine.prefix_tree import Checkpoint, CheckpointKind, KeptPage, Outlook, Place, PrefixTree
from pyjet.engine.swap_counts import SwapCounts

# Pages that leave the device at a time: finding the oldest ones costs a walk over all.
SWAP_BATCH = 16
# So few free slots are scarce: the next request or checkpoint takes the last one.
SCARCE_SLOTS = 1


class Kept:
    """Checkpoints with their pages and states, on the device and on the host.

    Pages that nobody runs on move to the host when the pool is empty, and states when slots are; what finds no place
    there is forgotten, the least recently used checkpoint first. One that a preempted sequence comes back to is
    forgotten only by force, one that is ``protected`` never.
    """

    def __init__(
        self, pool: PagePool, n_state_slots: int, memory: DeviceMemory, host: HostStore, max_checkpoints: int
    ) -> None:
        self.tree = PrefixTree(pool.page_tokens)
        self.checkpoints: set[Checkpoint] = set()
        self.free_slots = list(range(n_state_slots - 1, -1, -1))
        self.swaps = SwapCounts()
        self.host = host
        self.protected: Checkpoint | None = None
        self._pool = pool
        self._memory = memory
        self._n_state_slots = n_state_slots
        self._most = max_checkpoints
        self._clock = 0
        self.has_state = memory.state_bytes > 0
        self._copy_times = CopyTimes()
        self._ahead = self._bytes_of_use()

    def _bytes_of_use(self) -> int:
        """Host memory that is worth having: all checkpoints and a pool of pages, but half of what is free at most."""
        most = self._most * self._memory.state_bytes + self._pool.n_pages * self._memory.page_bytes
        available = available_bytes()
        return most if available is None else min(most, available // 2)

    def prepare(self) -> bool:
        """While nothing runs: a little of what would take time later; False when nothing is left to do.

        Host memory is allocated, and states on the device are copied there: their slots can then be had at once. Those
        that conversations are likely to go on from come back for others.
        """
        if self.host.allocate_ahead(self._ahead):
            return True
        return self.has_state and (self._copy_a_state(self.host.take_state) or self._bring_back_a_state())

    def copy_beside_step(self, seconds: float) -> bool:
        """While a step computes for so many seconds more: copy a state, if slots are scarce and that ends before it."""
        is_worthwhile = self.has_state and self._memory.copies_beside_steps and len(self.free_slots) <= SCARCE_SLOTS
        if not is_worthwhile or not self._copy_times.fit(seconds):
            return False
        return self._copy_a_state(self.host.spare_state) or self._bring_back_a_state()

    @property
    def is_off(self) -> bool:
        """Nothing is kept but for preempted sequences."""
        return self._most <= 0

    def _copy_a_state(self, take: Callable[[], HostBlock | None]) -> bool:
        uncopied = [c for c in self.checkpoints if c.state_slot >= 0 and c.state_host is None]
        oldest = min(uncopied, key=lambda c: c.last_used, default=None)
        if oldest is None or (block := take()) is None:
            return False
        self._read_state(oldest.state_slot, block)
        oldest.state_host = block
        return True

    def _bring_back_a_state(self) -> bool:
        """In place of one that is copied and of less use."""
        absent = [c for c in self.checkpoints if c.state_slot < 0 and _is_turn(c) and c.outlook is Outlook.LIVE]
        newest = max(absent, key=lambda c: c.last_used, default=None)
        if newest is None or newest.state_host is None or not self._free_a_slot(Outlook.PASSED):
            return False
        slot = self.free_slots.pop()
        self.write_state(slot, newest.state_host)
        newest.state_slot = slot
        return True

    def add(self, checkpoint: Checkpoint) -> None:
        """A checkpoint whose pages are there. Too many: the oldest ones are forgotten."""
        self.tree.add(checkpoint)
        self.checkpoints.add(checkpoint)
        self.touch(checkpoint)
        if self.has_state:
            for earlier in self.tree.prefixes(checkpoint):
                earlier.outlook = max(earlier.outlook, Outlook.PASSED)
        # Without a state one can go on anywhere in the longer one. A parked one leaves with its sequence, so it takes
        # no other's place.
        if not self.has_state and checkpoint.kind != "parked":
            for shorter in [c for c in self.tree.prefixes(checkpoint) if not c.n_parked]:
                self.forget(shorter)
        while len(self.checkpoints) > self._most:
            oldest = self._oldest(lambda c: c is not checkpoint)
            if oldest is None:
                break
            self.forget(oldest)

    def touch(self, checkpoint: Checkpoint) -> None:
        """It was used now, and so were all pages and all shared checkpoints before it."""
        self.touch_place(Place(checkpoint, checkpoint.node, checkpoint.n_tokens, checkpoint.tail))

    def touch_place(self, place: Place) -> None:
        """The same for all that lies before a place."""
        self._clock += 1
        if place.n_tokens == place.checkpoint.n_tokens:
            place.checkpoint.last_used = self._clock
        for node in [self.tree.root, *place.node.path]:
            node.last_used = self._clock
            for other in node.checkpoints.values():
                if other.kind == "shared" and other.n_tokens < place.n_tokens:
                    other.last_used = self._clock

    def go_on_from(self, place: Place) -> None:
        """Somebody does, and will be kept further on."""
        self.touch_place(place)
        place.checkpoint.outlook = Outlook.PASSED

    def _on_device(self) -> list[Checkpoint]:
        """States that could leave it."""
        return [c for c in self.checkpoints if c.state_slot >= 0 and c is not self.protected]

    def use_as(self, known: Checkpoint, kind: CheckpointKind) -> None:
        """Somebody comes to a place that is kept already."""
        self.touch(known)
        known.outlook = Outlook.LIVE
        if known.kind == "parked" or kind == "shared":
            known.kind = kind

    def forget(self, checkpoint: Checkpoint) -> None:
        """With the pages and the state that nobody else needs."""
        self.checkpoints.discard(checkpoint)
        for node in self.tree.remove(checkpoint):
            self._let_go(node.kept)
        if checkpoint.tail is not None:
            self._let_go(checkpoint.tail)
        if checkpoint.state_slot >= 0:
            self.free_slots.append(checkpoint.state_slot)
        if checkpoint.state_host is not None:
            self.host.free(checkpoint.state_host)
        checkpoint.state_slot, checkpoint.state_host = -1, None

    def _let_go(self, kept: KeptPage) -> None:
        if kept.page >= 0:
            self._pool.drop([kept.page])
        if kept.host is not None:
            self.host.free(kept.host)
        kept.page, kept.host = -1, None

    def forget_all(self) -> None:
        """All that no preempted sequence needs."""
        while (oldest := self._oldest(lambda _: True)) is not None:
            self.forget(oldest)

    def take_pages(self, n: int, *, force: bool = False) -> list[int] | None:
        """``n`` pages, none if it is negative. Others move to the host for them or are forgotten.

        By ``force`` also those of preempted sequences are forgotten. None when even that is not enough.
        """
        n = max(0, n)
        if self._pool.n_free < n:
            self._swap_out(max(n - self._pool.n_free, SWAP_BATCH))
        while self._pool.n_free < n and (oldest := self._oldest(self._has_idle_page, force=force)) is not None:
            self.forget(oldest)
        return self._pool.take(n)

    def take_slot(self) -> int | None:
        """A state slot; a state on the device leaves for it: one that is copied, of these the least useful."""
        if not self.free_slots:
            on_device = self._on_device()
            if on_device and not self._state_to_host(min(on_device, key=_leaves_first)):
                self.forget(min(on_device, key=lambda c: (c.n_parked > 0, c.last_used, c.n_tokens)))
        return self.free_slots.pop() if self.free_slots else None

    def take_over_slot(self, checkpoint: Checkpoint) -> int | None:
        """The slot with a checkpoint's state, which then is on the host alone; None where that cannot or need not be.

        When agents take turns the state on the device that was not used for longest is the one needed next: it would
        leave for the first of them to start, and come back. A shared one stays for those who start there too.
        """
        is_copied = checkpoint.state_slot >= 0 and checkpoint.state_host is not None
        if self.free_slots or not is_copied or checkpoint.kind == "shared":
            return None
        slot, checkpoint.state_slot = checkpoint.state_slot, -1
        return slot

    def save_state(self, slot: int, checkpoint: Checkpoint) -> bool:
        """Keep a state: in a free slot or that of a copied one, else on the host, else where the oldest is.

        A copy to the host takes milliseconds; a state in a slot can wait for it until a step computes, as can one that
        conversations go on from until it comes back. False: nowhere.
        """
        if not self.has_state:
            return True
        least = Outlook.LIVE if self._memory.copies_beside_steps else Outlook.PASSED
        if not self.free_slots and not self._free_a_slot(least) and (block := self.host.take_state()) is not None:
            self._read_state(slot, block)
            checkpoint.state_host = block
            return True
        self.protected, before = checkpoint, self.protected
        free = self.take_slot()
        self.protected = before
        if free is None:
            return False
        self._memory.state_copy(slot, free)
        checkpoint.state_slot = free
        return True

    def _copied_state(self, least: Outlook) -> Checkpoint | None:
        """One conversation's state that is on the host too; ``least``: of those that are of no more use than that."""
        copied = [c for c in self._on_device() if c.state_host is not None and _is_turn(c) and c.outlook >= least]
        return min(copied, key=_leaves_first, default=None)

    def _free_a_slot(self, least: Outlook) -> bool:
        """That of such a state; False: there is none."""
        copied = self._copied_state(least)
        return copied is not None and self._state_to_host(copied)

    def _state_to_host(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.state_host is None:
            block = self._host_block(self.host.take_state, checkpoint.last_used)
            if block is None:
                return False
            self._read_state(checkpoint.state_slot, block)
            checkpoint.state_host = block
        self.free_slots.append(checkpoint.state_slot)
        checkpoint.state_slot = -1
        return True

    def _read_state(self, slot: int, block: HostBlock) -> None:
        with self.swaps.moving_out(), self._copy_times.timed():
            self._memory.state_read(slot, block.data[: self._memory.state_bytes])

    def write_state(self, slot: int, block: HostBlock) -> None:
        with self.swaps.moving_in(), self._copy_times.timed():
            self._memory.state_write(slot, block.data[: self._memory.state_bytes])

    def _swap_out(self, n: int) -> None:
        """Move up to ``n`` pages to the host, the oldest first, as far as it has room."""
        moving: list[tuple[KeptPage, HostBlock]] = []
        for last_used, _, kept in sorted(self.idle_pages(), key=lambda idle: idle[:2])[:n]:
            block = self._host_block(self.host.take_page, last_used)
            if block is None:
                break
            moving.append((kept, block))
        # What was forgotten meanwhile has no page any more.
        alive = [(kept, block) for kept, block in moving if kept.page >= 0]
        for kept, block in moving:
            if kept.page < 0:
                self.host.free(block)
        if alive:
            with self.swaps.moving_out():
                read_pages(self._memory, [kept.page for kept, _ in alive], [block for _, block in alive])
        for kept, block in alive:
            self._pool.drop([kept.page])
            kept.page, kept.host = -1, block

    def _host_block(self, take: Callable[[], HostBlock | None], last_used: int) -> HostBlock | None:
        """Room on the host; copies go for it, and what was used before ``last_used`` is forgotten."""
        block = take()
        while block is None and self._drop_a_copy():
            block = take()
        while block is None and (oldest := self._oldest(self._is_on_host, before=last_used)) is not None:
            self.forget(oldest)
            block = take()
        return block

    def _drop_a_copy(self) -> bool:
        """Free the host's copy of a state that is on the device too."""
        for checkpoint in self.checkpoints:
            if checkpoint.state_slot >= 0 and checkpoint.state_host is not None:
                self.host.free(checkpoint.state_host)
                checkpoint.state_host = None
                return True
        return False

    def idle_pages(self) -> Iterator[tuple[int, int, KeptPage]]:
        """Pages on the device that nobody runs on: (when last used, minus the depth, page)."""
        for node in self.tree.nodes():
            if self._is_idle(node.kept):
                yield node.last_used, -node.depth, node.kept
        for checkpoint in self.checkpoints:
            # The tail of the checkpoint that is being opened must stay where it is until it was copied.
            if checkpoint.tail is not None and checkpoint is not self.protected and self._is_idle(checkpoint.tail):
                yield checkpoint.last_used, -checkpoint.node.depth - 1, checkpoint.tail

    def _is_idle(self, kept: KeptPage) -> bool:
        return kept.page >= 0 and self._pool.n_holders(kept.page) == 1

    def _has_idle_page(self, checkpoint: Checkpoint) -> bool:
        return any(self._is_idle(kept) for kept in checkpoint.pages)

    @staticmethod
    def _is_on_host(checkpoint: Checkpoint) -> bool:
        return checkpoint.state_host is not None or any(kept.host is not None for kept in checkpoint.pages)

    def _oldest(
        self, is_of_use: Callable[[Checkpoint], bool], *, before: int | None = None, force: bool = False
    ) -> Checkpoint | None:
        """The checkpoint to forget next; of equal age the longest, which needs the others' pages."""
        candidates = [
            c
            for c in self.checkpoints
            if c is not self.protected
            and (force or not c.n_parked)
            and (before is None or c.last_used < before)
            and is_of_use(c)
        ]
        return min(candidates, key=lambda c: (c.n_parked, c.last_used, -c.n_tokens), default=None)

    def held_pages(self) -> list[int]:
        """Pages on the device that are kept, for checks."""
        kept = [node.kept for node in self.tree.nodes()]
        kept += [c.tail for c in self.checkpoints if c.tail is not None]
        return [k.page for k in kept if k.page >= 0]

    def check(self, state_slots: Iterable[int]) -> None:
        """AssertionError unless states and checkpoints agree; ``state_slots``: of those that run."""
        assert set(self.tree.checkpoints()) == self.checkpoints
        slots = [c.state_slot for c in self.checkpoints if c.state_slot >= 0]
        assert sorted([*slots, *state_slots, *self.free_slots]) == list(range(self._n_state_slots)), "a slot is lost"
        for checkpoint in self.checkpoints:
            assert (checkpoint.state_slot >= 0 or checkpoint.state_host is not None) == self.has_state
            assert (checkpoint.tail is None) == (not checkpoint.tail_key)
        for node in self.tree.nodes():
            assert (node.kept.page >= 0) != (node.kept.host is not None)
            assert node.children or node.checkpoints, "a node that no checkpoint needs"


def _leaves_first(checkpoint: Checkpoint) -> tuple[bool, int, int, int]:
    """The order in which states leave the device. One that is not copied takes the place of older ones on the host."""
    is_copied = checkpoint.state_host is not None
    return not is_copied, -_outlook(checkpoint) if is_copied else 0, checkpoint.last_used, checkpoint.n_tokens


def _outlook(checkpoint: Checkpoint) -> Outlook:
    return checkpoint.outlook if _is_turn(checkpoint) else Outlook.LIVE


def _is_turn(checkpoint: Checkpoint) -> bool:
    """Of one conversation, and no preempted sequence comes back to it."""
    return checkpoint.kind == "turn" and not checkpoint.n_parked
