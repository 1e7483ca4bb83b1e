"""What was computed and may be needed again: pages and recurrent states, least recently used first to leave."""

from __future__ import annotations

from collections.abc import Iterable

from pyjet.engine.device_memory import DeviceMemory
from pyjet.engine.host_store import HostBlock, HostStore
from pyjet.engine.page_moves import read_pages, write_pages
from pyjet.engine.pages import PagePool
from pyjet.engine.prefix_tree import Checkpoint, CheckpointKind, KeptPage, Match, PrefixTree, Tokens
from pyjet.engine.sequence import Sequence
from pyjet.engine.snapshot import Snapshot, take_snapshot
from pyjet.engine.swap_counts import SwapCounts

# Pages that leave the device at a time: finding the oldest ones costs a walk over all.
SWAP_BATCH = 16


class PrefixCache:
    """Keeps checkpoints and the pages before them, and gives both to sequences.

    Pages that nobody runs on move to the host when the pool is empty, and states when slots are; what finds no place
    there is forgotten, the oldest checkpoint first. A checkpoint that a preempted sequence comes back to is forgotten
    only by force.
    """

    def __init__(
        self, pool: PagePool, n_state_slots: int, memory: DeviceMemory, host: HostStore, max_checkpoints: int
    ) -> None:
        self.tree = PrefixTree(pool.page_tokens)
        self.swaps = SwapCounts()
        self._pool = pool
        self._memory = memory
        self._host = host
        self._free_slots = list(range(n_state_slots - 1, -1, -1))
        self._n_state_slots = n_state_slots
        self._most = max_checkpoints
        self._checkpoints: set[Checkpoint] = set()
        self._clock = 0
        self._protected: Checkpoint | None = None  # a sequence is being put on it

    def prepare(self) -> bool:
        """Do a little of what will be needed; False when nothing is left to do."""
        return self._host.allocate_ahead()

    @property
    def n_idle_pages(self) -> int:
        """Pages on the device that nobody runs on."""
        return sum(1 for _ in self._idle_pages())

    @property
    def n_checkpoints(self) -> int:
        return len(self._checkpoints)

    @property
    def host_bytes(self) -> int:
        return self._host.bytes_used

    def match(self, tokens: Tokens, most: int) -> Match:
        return self.tree.match(tokens, most)

    def n_pages_needed(self, match: Match, n_pages: int) -> int:
        """Pages that must be free for a sequence of ``n_pages`` pages that goes on from ``match``."""
        if match.checkpoint is None:
            return n_pages
        return n_pages - sum(node.kept.page >= 0 for node in match.checkpoint.node.path)

    def n_available(self, match: Match) -> int:
        """Pages that are free or could be, with the ones that ``match`` shares left where they are."""
        taken = set() if match.checkpoint is None else {node.kept.page for node in match.checkpoint.node.path}
        return self._pool.n_free + sum(kept.page not in taken for _, _, kept in self._idle_pages())

    def open(self, sequence: Sequence, checkpoint: Checkpoint | None, n_pages: int, *, force: bool = False) -> bool:
        """Give a sequence a state slot and ``n_pages`` pages. From a checkpoint it goes on with what is there.

        False, and it holds nothing, when there is no room; ``force``: see take_pages.
        """
        self._protected = checkpoint
        if checkpoint is not None:
            self._touch(checkpoint)
        try:
            if self._open(sequence, checkpoint, force) and self.grow(sequence, n_pages, force=force):
                sequence.n_computed = 0 if checkpoint is None else checkpoint.n_tokens
                return True
            self._close(sequence)
            return False
        finally:
            self._protected = None

    def _open(self, sequence: Sequence, checkpoint: Checkpoint | None, force: bool) -> bool:
        slot = self._take_slot()
        if slot is None:
            return False
        sequence.state_slot = slot
        if checkpoint is None:
            return True
        if not self._share_pages(sequence, checkpoint, force):
            return False
        self._restore(checkpoint, slot)
        return True

    def _close(self, sequence: Sequence) -> None:
        """It holds nothing any more."""
        if sequence.state_slot >= 0:
            self._free_slots.append(sequence.state_slot)
            sequence.state_slot = -1
        self._pool.drop(sequence.take_all_pages())

    def _share_pages(self, sequence: Sequence, checkpoint: Checkpoint, force: bool) -> bool:
        path, tail = checkpoint.node.path, checkpoint.tail
        resident = [self._pool.hold(node.kept.page) for node in path if node.kept.page >= 0]
        absent = [node.kept for node in path if node.kept.page < 0]
        pages = self.take_pages(len(absent) + (tail is not None), force=force)
        if pages is None:
            self._pool.drop(resident)
            return False
        own = []
        if tail is not None:
            own = [pages.pop()]
            self._fill(own[0], tail)
        self._bring_back(absent, pages)
        sequence.add_pages([*(node.kept.page for node in path), *own])
        return True

    def _fill(self, page: int, tail: KeptPage) -> None:
        """A tail is copied: the sequence will write behind it."""
        if tail.page >= 0:
            self._memory.pages_copy([tail.page], [page])
        else:
            assert tail.host is not None
            with self.swaps.moving_in(pages=1):
                write_pages(self._memory, [page], [tail.host])

    def _bring_back(self, absent: list[KeptPage], pages: list[int]) -> None:
        """Pages of the tree return from the host, held by the tree and by the sequence that needs them."""
        blocks = [kept.host for kept in absent if kept.host is not None]
        assert len(blocks) == len(pages)
        if pages:
            with self.swaps.moving_in(pages=len(pages)):
                write_pages(self._memory, pages, blocks)
        for kept, page, block in zip(absent, pages, blocks):
            kept.page, kept.host = self._pool.hold(page), None
            self._host.free(block)

    def _restore(self, checkpoint: Checkpoint, slot: int) -> None:
        if checkpoint.state_slot >= 0:
            self._memory.state_copy(checkpoint.state_slot, slot)
            return
        assert checkpoint.state_host is not None
        with self.swaps.moving_in(states=1):
            self._memory.state_write(slot, checkpoint.state_host.data[: self._memory.state_bytes])

    def save(self, sequence: Sequence, kind: CheckpointKind) -> Checkpoint | None:
        """Keep what the sequence has committed while it runs on; None when there is no room for it."""
        tokens = sequence.tokens[: sequence.n_committed]
        if (known := self.tree.find(tokens)) is not None:
            self._use_as(known, kind)
            return known
        tail = None
        if len(tokens) % self._pool.page_tokens:
            if (pages := self.take_pages(1)) is None:
                return None
            tail = KeptPage(pages[0])
            self._memory.pages_copy([sequence.pages[len(tokens) // self._pool.page_tokens]], pages)
        checkpoint = self._insert(sequence.pages, tokens, kind, tail, sequence)
        if not self._save_state(sequence.state_slot, checkpoint):
            self._forget(checkpoint)
            return None
        return checkpoint

    def keep(self, sequence: Sequence, kind: CheckpointKind = "turn") -> Checkpoint | None:
        """Take over pages and state of a sequence that stops running. It holds nothing afterwards."""
        checkpoint = None
        if sequence.state_slot >= 0:
            if sequence.n_pending:
                self._memory.state_commit(sequence.state_slot, sequence.n_pending)
                sequence.n_pending = 0
            if sequence.n_computed:
                checkpoint = self._adopt(sequence, kind)
        self._close(sequence)
        return checkpoint

    def _adopt(self, sequence: Sequence, kind: CheckpointKind) -> Checkpoint:
        tokens = sequence.tokens[: sequence.n_computed]
        if (checkpoint := self.tree.find(tokens)) is not None:
            self._use_as(checkpoint, kind)
        else:
            tail = None
            if len(tokens) % self._pool.page_tokens:
                tail = KeptPage(self._pool.hold(sequence.pages[len(tokens) // self._pool.page_tokens]))
            checkpoint = self._insert(sequence.pages, tokens, kind, tail, sequence)
        if checkpoint.state_slot < 0:
            checkpoint.state_slot, sequence.state_slot = sequence.state_slot, -1
            if checkpoint.state_host is not None:
                self._host.free(checkpoint.state_host)
                checkpoint.state_host = None
        checkpoint.n_parked += kind == "parked"
        return checkpoint

    def unpark(self, checkpoint: Checkpoint) -> None:
        """The sequence that would come back to it has come back, or ended."""
        if checkpoint not in self._checkpoints:  # it was forgotten by force
            return
        checkpoint.n_parked -= 1
        if checkpoint.kind == "parked" and not checkpoint.n_parked:  # the middle of an answer: of no use to others
            self._forget(checkpoint)

    def _insert(
        self,
        pages: list[int],
        tokens: Tokens,
        kind: CheckpointKind,
        tail: KeptPage | None,
        owner: Sequence | None = None,
    ) -> Checkpoint:
        """A checkpoint without a state, and the tree's hold of all full pages before it.

        ``owner`` of the pages gets the tree's own where others computed the same tokens: both hold the same bits.
        """
        path, new = self.tree.grow(tokens)
        n_known = len(path) - len(new)
        for i, node in enumerate(path):
            page, kept = pages[i], node.kept
            if i >= n_known or kept.page < 0:
                kept.page = self._pool.hold(page)
                if kept.host is not None:
                    self._host.free(kept.host)
                    kept.host = None
            elif kept.page != page and owner is not None:
                owner.replace_page(i, self._pool.hold(kept.page))
                self._pool.drop([page])
        node = path[-1] if path else self.tree.root
        tail_key = tokens[node.depth * self._pool.page_tokens :].tobytes()
        checkpoint = Checkpoint(node, tail_key, len(tokens), kind, tail)
        self.tree.add(checkpoint)
        self._checkpoints.add(checkpoint)
        self._touch(checkpoint)
        while len(self._checkpoints) > self._most and (oldest := self._oldest(besides=checkpoint)) is not None:
            self._forget(oldest)
        return checkpoint

    def _save_state(self, slot: int, checkpoint: Checkpoint) -> bool:
        """Into a free slot, else to the host, else into the place of the oldest one."""
        if not self._free_slots and (block := self._host.take_state()) is not None:
            self._read_state(slot, block)
            checkpoint.state_host = block
            return True
        self._protected, before = checkpoint, self._protected
        free = self._take_slot()
        self._protected = before
        if free is None:
            return False
        self._memory.state_copy(slot, free)
        checkpoint.state_slot = free
        return True

    def grow(self, sequence: Sequence, n_pages: int, *, force: bool = False) -> bool:
        """Let a sequence own ``n_pages`` pages. False, and it stays as it is, when there are not enough."""
        pages = self.take_pages(n_pages - len(sequence.pages), force=force)
        if pages is not None:
            sequence.add_pages(pages)
        return pages is not None

    def take_pages(self, n: int, *, force: bool = False) -> list[int] | None:
        """``n`` pages, none if it is negative. Others move to the host for them or are forgotten.

        By ``force`` also those of preempted sequences are forgotten. None when even that is not enough.
        """
        n = max(0, n)
        if self._pool.n_free < n:
            self._swap_out(max(n - self._pool.n_free, SWAP_BATCH))
        while self._pool.n_free < n and (oldest := self._oldest(force=force)) is not None:
            self._forget(oldest)
        return self._pool.take(n)

    def _take_slot(self) -> int | None:
        """A state slot; the oldest state on the device leaves for it."""
        if not self._free_slots:
            on_device = [c for c in self._checkpoints if c.state_slot >= 0 and c is not self._protected]
            by_age = sorted(on_device, key=lambda c: (c.last_used, c.n_tokens))
            if not any(self._state_to_host(checkpoint) for checkpoint in by_age[:1]):
                droppable = [c for c in by_age if not c.n_parked] or by_age
                if droppable:
                    self._forget(droppable[0])
        return self._free_slots.pop() if self._free_slots else None

    def _state_to_host(self, checkpoint: Checkpoint) -> bool:
        block = self._host.take_state()
        while block is None and (oldest := self._oldest(before=checkpoint.last_used)) is not None:
            self._forget(oldest)
            block = self._host.take_state()
        if block is None or checkpoint not in self._checkpoints:
            return False
        self._read_state(checkpoint.state_slot, block)
        self._free_slots.append(checkpoint.state_slot)
        checkpoint.state_slot, checkpoint.state_host = -1, block
        return True

    def _read_state(self, slot: int, block: HostBlock) -> None:
        with self.swaps.moving_out(states=1):
            self._memory.state_read(slot, block.data[: self._memory.state_bytes])

    def _swap_out(self, n: int) -> None:
        """Move up to ``n`` pages to the host, the oldest first, as far as it has room."""
        moving: list[tuple[KeptPage, HostBlock]] = []
        for last_used, _, kept in sorted(self._idle_pages(), key=lambda idle: idle[:2])[:n]:
            block = self._host.take_page()
            while block is None and (oldest := self._oldest(before=last_used)) is not None:
                self._forget(oldest)
                block = self._host.take_page()
            if block is None:
                break
            moving.append((kept, block))
        # What was forgotten meanwhile has no page any more.
        alive = [(kept, block) for kept, block in moving if kept.page >= 0]
        for kept, block in moving:
            if kept.page < 0:
                self._host.free(block)
        if alive:
            with self.swaps.moving_out(pages=len(alive)):
                read_pages(self._memory, [kept.page for kept, _ in alive], [block for _, block in alive])
        for kept, block in alive:
            self._pool.drop([kept.page])
            kept.page, kept.host = -1, block

    def _idle_pages(self) -> Iterable[tuple[int, int, KeptPage]]:
        """Pages on the device that only the tree holds: (when last used, minus the depth, page)."""
        for node in self.tree.nodes():
            if node.kept.page >= 0 and self._pool.n_holders(node.kept.page) == 1:
                yield node.last_used, -node.depth, node.kept
        for checkpoint in self._checkpoints:
            tail = checkpoint.tail
            # The tail of the checkpoint that is being opened must stay where it is until it was copied.
            if tail is None or tail.page < 0 or checkpoint is self._protected:
                continue
            if self._pool.n_holders(tail.page) == 1:
                yield checkpoint.last_used, -checkpoint.node.depth - 1, tail

    def _oldest(
        self, *, before: int | None = None, besides: Checkpoint | None = None, force: bool = False
    ) -> Checkpoint | None:
        """The checkpoint to forget next; of equal age the longest, which needs the others' pages."""
        candidates = [
            c
            for c in self._checkpoints
            if c is not besides
            and c is not self._protected
            and (force or not c.n_parked)
            and (before is None or c.last_used < before)
        ]
        return min(candidates, key=lambda c: (c.n_parked, c.last_used, -c.n_tokens), default=None)

    def _use_as(self, known: Checkpoint, kind: CheckpointKind) -> None:
        """Somebody comes to a place that is kept already."""
        self._touch(known)
        if known.kind == "parked" or kind == "shared":
            known.kind = kind

    def _touch(self, checkpoint: Checkpoint) -> None:
        """It was used now, and so were all pages and all shared checkpoints before it."""
        self._clock += 1
        checkpoint.last_used = self._clock
        for node in [self.tree.root, *checkpoint.node.path]:
            node.last_used = self._clock
            for other in node.checkpoints.values():
                if other.kind == "shared" and other.n_tokens < checkpoint.n_tokens:
                    other.last_used = self._clock

    def _forget(self, checkpoint: Checkpoint) -> None:
        self._checkpoints.discard(checkpoint)
        for node in self.tree.remove(checkpoint):
            self._let_go(node.kept)
        if checkpoint.tail is not None:
            self._let_go(checkpoint.tail)
        if checkpoint.state_slot >= 0:
            self._free_slots.append(checkpoint.state_slot)
        if checkpoint.state_host is not None:
            self._host.free(checkpoint.state_host)
        checkpoint.state_slot, checkpoint.state_host = -1, None

    def _let_go(self, kept: KeptPage) -> None:
        if kept.page >= 0:
            self._pool.drop([kept.page])
        if kept.host is not None:
            self._host.free(kept.host)
        kept.page, kept.host = -1, None

    def snapshot(self, tokens: Tokens) -> Snapshot | None:
        """Copies of the longest prefix of ``tokens`` that is kept; None when none is."""
        checkpoint = self.match(tokens, len(tokens)).checkpoint
        if checkpoint is None:
            return None
        return take_snapshot(self._memory, tokens[: checkpoint.n_tokens], checkpoint)

    def put(self, snapshot: Snapshot) -> bool:
        """Keep what a snapshot holds, as if it had been computed here. False: there is no room."""
        tokens = snapshot.tokens
        if (known := self.tree.find(tokens)) is not None:
            self._touch(known)
            return True
        if (pages := self.take_pages(len(snapshot.pages))) is None:
            return False
        slot = self._take_slot()
        if slot is not None:
            self._memory.pages_write(pages, snapshot.pages)
            self._memory.state_write(slot, snapshot.state)
            n_full = len(tokens) // self._pool.page_tokens
            tail = KeptPage(self._pool.hold(pages[n_full])) if len(pages) > n_full else None
            self._insert(pages, tokens, "turn", tail).state_slot = slot
        self._pool.drop(pages)
        return slot is not None

    def erase(self, tokens: Tokens) -> None:
        """Forget every checkpoint that ``tokens`` could go on from, but for those of preempted sequences."""
        while True:
            at = [c for c in self._checkpoints if not c.n_parked and self._is_prefix(c, tokens)]
            if not at:
                return
            for checkpoint in at:
                self._forget(checkpoint)

    def _is_prefix(self, checkpoint: Checkpoint, tokens: Tokens) -> bool:
        n = checkpoint.n_tokens
        return n <= len(tokens) and self.tree.find(tokens[:n]) is checkpoint

    def clear(self) -> None:
        """Forget everything that no preempted sequence needs."""
        while (oldest := self._oldest()) is not None:
            self._forget(oldest)

    def held_pages(self) -> list[int]:
        """Pages that the tree holds, for checks."""
        kept = [node.kept for node in self.tree.nodes()]
        kept += [c.tail for c in self._checkpoints if c.tail is not None]
        return [k.page for k in kept if k.page >= 0]

    def check(self, running: Iterable[Sequence]) -> None:
        """AssertionError unless states and checkpoints agree. For tests and debugging."""
        assert set(self.tree.checkpoints()) == self._checkpoints
        slots = [c.state_slot for c in self._checkpoints if c.state_slot >= 0]
        slots += [s.state_slot for s in running]
        assert sorted(slots + self._free_slots) == list(range(self._n_state_slots)), "a state slot is lost"
        for checkpoint in self._checkpoints:
            assert (checkpoint.state_slot >= 0) != (checkpoint.state_host is not None)
            assert (checkpoint.tail is None) == (not checkpoint.tail_key)
        for node in self.tree.nodes():
            assert (node.kept.page >= 0) != (node.kept.host is not None)
            assert node.children or node.checkpoints, "a node that no checkpoint needs"
