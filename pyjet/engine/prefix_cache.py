"""Gives sequences what was computed before, and keeps what they compute."""

from __future__ import annotations

from collections.abc import Iterable

from pyjet.engine.device_memory import DeviceMemory
from pyjet.engine.host_store import HostStore
from pyjet.engine.kept import Kept
from pyjet.engine.page_moves import write_pages
from pyjet.engine.pages import PagePool
from pyjet.engine.prefix_tree import Checkpoint, CheckpointKind, KeptPage, Match, Outlook, Place, Tokens
from pyjet.engine.sequence import Sequence
from pyjet.engine.snapshot import Snapshot, take_snapshot
from pyjet.engine.swap_counts import SwapCounts


class PrefixCache:
    """Checkpoints of prompts and answers. Who leaves when there is no room is the business of Kept."""

    def __init__(
        self, pool: PagePool, n_state_slots: int, memory: DeviceMemory, host: HostStore, max_checkpoints: int
    ) -> None:
        self._kept = Kept(pool, n_state_slots, memory, host, max_checkpoints)
        self._tree = self._kept.tree
        self._pool = pool
        self._memory = memory

    @property
    def swaps(self) -> SwapCounts:
        return self._kept.swaps

    @property
    def has_state(self) -> bool:
        """Sequences have a recurrent state, so they go on at checkpoints only."""
        return self._kept.has_state

    @property
    def n_idle_pages(self) -> int:
        """Pages on the device that nobody runs on."""
        return sum(1 for _ in self._kept.idle_pages())

    @property
    def n_checkpoints(self) -> int:
        return len(self._kept.checkpoints)

    @property
    def host_bytes(self) -> int:
        return self._kept.host.bytes_used

    def prepare(self) -> bool:
        """Do a little of what will be needed; False when nothing is left to do."""
        return self._kept.prepare()

    def copy_beside_step(self, seconds: float) -> bool:
        """The same while a step computes for so many seconds more."""
        return self._kept.copy_beside_step(seconds)

    def match(self, tokens: Tokens, most: int) -> Match:
        return self._tree.match(tokens, most) if self.has_state else self._tree.match_anywhere(tokens, most)

    def n_pages_needed(self, match: Match, n_pages: int) -> int:
        """Pages that must be free for a sequence of ``n_pages`` pages that goes on from ``match``."""
        return n_pages - sum(node.kept.page >= 0 for node in match.path)

    def n_available(self, match: Match) -> int:
        """Pages that are free or could be, with the ones that ``match`` shares left where they are."""
        taken = {node.kept.page for node in match.path}
        return self._pool.n_free + sum(kept.page not in taken for _, _, kept in self._kept.idle_pages())

    def open(self, sequence: Sequence, place: Place | None, n_pages: int, *, force: bool = False) -> bool:
        """Give a sequence a state slot and ``n_pages`` pages. At a place it goes on with what is there.

        False, and it holds nothing, when there is no room; ``force``: see Kept.take_pages.
        """
        if place is not None:
            self._kept.protected = place.checkpoint
            # Its conversation leaves what it had come to, such as an answer whose thoughts are dropped.
            sequence.leaves_answers = self._tree.has_more(place.checkpoint)
            self._kept.go_on_from(place)
        try:
            if self._open(sequence, place, force) and self.grow(sequence, n_pages, force=force):
                sequence.n_computed = 0 if place is None else place.n_tokens
                return True
            self.drop(sequence)
            return False
        finally:
            self._kept.protected = None

    def _open(self, sequence: Sequence, place: Place | None, force: bool) -> bool:
        own = None if place is None else self._kept.take_over_slot(place.checkpoint)
        slot = self._kept.take_slot() if own is None else own
        if slot is None:
            return False
        sequence.state_slot = slot
        if place is None:
            return True
        if not self._share_pages(sequence, place, force):
            return False
        if self.has_state and own is None:
            self._restore(place.checkpoint, slot)
        return True

    def _share_pages(self, sequence: Sequence, place: Place, force: bool) -> bool:
        path, tail = place.node.path, place.tail
        resident = [self._pool.hold(node.kept.page) for node in path if node.kept.page >= 0]
        absent = [node.kept for node in path if node.kept.page < 0]
        pages = self._kept.take_pages(len(absent) + (tail is not None), force=force)
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
            with self.swaps.moving_in():
                write_pages(self._memory, [page], [tail.host])

    def _bring_back(self, absent: list[KeptPage], pages: list[int]) -> None:
        """Pages of the tree return from the host, held by the tree and by the sequence that needs them."""
        blocks = [kept.host for kept in absent if kept.host is not None]
        assert len(blocks) == len(pages)
        if pages:
            with self.swaps.moving_in():
                write_pages(self._memory, pages, blocks)
        for kept, page, block in zip(absent, pages, blocks):
            kept.page, kept.host = self._pool.hold(page), None
            self._kept.host.free(block)

    def _restore(self, checkpoint: Checkpoint, slot: int) -> None:
        if checkpoint.state_slot >= 0:
            self._memory.state_copy(checkpoint.state_slot, slot)
            return
        assert checkpoint.state_host is not None
        self._kept.write_state(slot, checkpoint.state_host)

    def grow(self, sequence: Sequence, n_pages: int, *, force: bool = False) -> bool:
        """Let a sequence own ``n_pages`` pages. False, and it stays as it is, when there are not enough."""
        pages = self._kept.take_pages(n_pages - len(sequence.pages), force=force)
        if pages is not None:
            sequence.add_pages(pages)
        return pages is not None

    def save(self, sequence: Sequence, kind: CheckpointKind) -> Checkpoint | None:
        """Keep what the sequence has committed while it runs on; None when there is no room for it."""
        if self._kept.is_off:
            return None
        tokens = sequence.tokens[: sequence.n_committed]
        if (known := self._known(tokens)) is not None:
            self._kept.use_as(known, kind)
            return known
        tail = None
        if len(tokens) % self._pool.page_tokens:
            if (pages := self._kept.take_pages(1)) is None:
                return None
            tail = KeptPage(pages[0])
            self._memory.pages_copy([sequence.pages[len(tokens) // self._pool.page_tokens]], pages)
        checkpoint = self._insert(sequence.pages, tokens, kind, tail, sequence)
        if not self._kept.save_state(sequence.state_slot, checkpoint):
            self._kept.forget(checkpoint)
            return None
        if not sequence.leaves_answers:
            checkpoint.outlook = Outlook.PASSED  # by the sequence, when it ends
        sequence.newest_kept = checkpoint
        return checkpoint

    def _known(self, tokens: Tokens) -> Checkpoint | None:
        """A checkpoint that keeps all that is needed to go on behind exactly these tokens."""
        if self.has_state:
            return self._tree.find(tokens)
        place = self._tree.match_anywhere(tokens, len(tokens)).place
        return place.checkpoint if place is not None and place.n_tokens == len(tokens) else None

    def keep(self, sequence: Sequence, kind: CheckpointKind = "turn") -> Checkpoint | None:
        """Take over pages and state of a sequence that stops running. It holds nothing afterwards."""
        checkpoint = None
        if sequence.state_slot >= 0:
            if sequence.n_pending:
                self._memory.state_commit(sequence.state_slot, sequence.n_pending)
                sequence.n_pending = 0
            if sequence.n_computed and (kind == "parked" or not self._kept.is_off):
                checkpoint = self._adopt(sequence, kind)
        self.drop(sequence)
        return checkpoint

    def _adopt(self, sequence: Sequence, kind: CheckpointKind) -> Checkpoint:
        tokens = sequence.tokens[: sequence.n_computed]
        if (checkpoint := self._known(tokens)) is not None:
            self._kept.use_as(checkpoint, kind)
        else:
            tail = self._held_tail(sequence.pages, tokens)
            checkpoint = self._insert(sequence.pages, tokens, kind, tail, sequence)
        if self.has_state and checkpoint.state_slot < 0:
            checkpoint.state_slot, sequence.state_slot = sequence.state_slot, -1
        checkpoint.n_parked += kind == "parked"
        if sequence.leaves_answers and sequence.newest_kept in self._kept.checkpoints:
            checkpoint.outlook, sequence.newest_kept.outlook = Outlook.PASSED, Outlook.LIVE
        return checkpoint

    def _held_tail(self, pages: list[int], tokens: Tokens) -> KeptPage | None:
        """The page that ``tokens`` do not fill, held once more; None when they fill all."""
        n_full, rest = divmod(len(tokens), self._pool.page_tokens)
        return KeptPage(self._pool.hold(pages[n_full])) if rest else None

    def drop(self, sequence: Sequence) -> None:
        """Keep nothing of a sequence that stops running. It holds nothing afterwards."""
        if sequence.state_slot >= 0:
            self._kept.free_slots.append(sequence.state_slot)
            sequence.state_slot = -1
        self._pool.drop(sequence.take_all_pages())

    def unpark(self, checkpoint: Checkpoint) -> None:
        """The sequence that would come back to it has come back, or ended."""
        if checkpoint not in self._kept.checkpoints:  # it was forgotten by force
            return
        checkpoint.n_parked -= 1
        if checkpoint.kind == "parked" and not checkpoint.n_parked:  # the middle of an answer: of no use to others
            self._kept.forget(checkpoint)

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
        path, new = self._tree.grow(tokens)
        n_known = len(path) - len(new)
        for i, node in enumerate(path):
            page, kept = pages[i], node.kept
            if i >= n_known or kept.page < 0:
                kept.page = self._pool.hold(page)
                if kept.host is not None:
                    self._kept.host.free(kept.host)
                    kept.host = None
            elif kept.page != page and owner is not None:
                owner.replace_page(i, self._pool.hold(kept.page))
                self._pool.drop([page])
        node = path[-1] if path else self._tree.root
        tail_key = tokens[node.depth * self._pool.page_tokens :].tobytes()
        checkpoint = Checkpoint(node, tail_key, len(tokens), kind, tail)
        self._kept.add(checkpoint)
        return checkpoint

    def snapshot(self, tokens: Tokens) -> Snapshot | None:
        """Copies of the longest prefix of ``tokens`` that is kept; None when none is."""
        place = self.match(tokens, len(tokens)).place
        return None if place is None else take_snapshot(self._memory, tokens[: place.n_tokens], place)

    def put(self, snapshot: Snapshot) -> bool:
        """Keep what a snapshot holds, as if it had been computed here. False: there is no room."""
        tokens = snapshot.tokens
        if (known := self._known(tokens)) is not None:
            self._kept.touch(known)
            return True
        if (pages := self._kept.take_pages(len(snapshot.pages))) is None:
            return False
        slot = self._kept.take_slot() if self.has_state else -1
        if slot is not None:
            self._memory.pages_write(pages, snapshot.pages)
            if self.has_state:
                self._memory.state_write(slot, snapshot.state)
            self._insert(pages, tokens, "turn", self._held_tail(pages, tokens)).state_slot = slot
        self._pool.drop(pages)
        return slot is not None

    def erase(self, tokens: Tokens) -> None:
        """Forget every checkpoint that ``tokens`` could go on from, but for those of preempted sequences."""
        for checkpoint in [c for c in self._kept.checkpoints if not c.n_parked and self._is_prefix(c, tokens)]:
            self._kept.forget(checkpoint)

    def _is_prefix(self, checkpoint: Checkpoint, tokens: Tokens) -> bool:
        n = checkpoint.n_tokens
        return n <= len(tokens) and self._tree.find(tokens[:n]) is checkpoint

    def clear(self) -> None:
        """Forget everything that no preempted sequence needs."""
        self._kept.forget_all()

    def held_pages(self) -> list[int]:
        """Pages on the device that are kept, for checks."""
        return self._kept.held_pages()

    def check(self, running: Iterable[Sequence]) -> None:
        """AssertionError unless states and checkpoints agree. For tests and debugging."""
        self._kept.check([sequence.state_slot for sequence in running])
