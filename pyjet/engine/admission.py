"""Who runs: the queue, and the slots and pages that running sequences hold."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from pyjet.engine.client import EngineLimits
from pyjet.engine.pages import PagePool
from pyjet.engine.request import GenerationRequest
from pyjet.engine.sequence import Sequence
from pyjet.engine.slots import SlotTable

# Pages beyond its tokens that a sequence gets at admission. They are how far it comes before it can need more, so
# they bound what a preemption wastes: reading L tokens again buys at least 8 pages of answer (512 tokens of 64 each),
# seconds of decoding. More would only keep memory from others that could run.
MAX_HEADROOM_PAGES = 8
# In a small pool the headroom of all slots together takes at most this part, or the slots could not be filled.
HEADROOM_SHARE = 4


@dataclass(frozen=True)
class Waiting:
    """A request in the queue. ``sequence``: what it was before it was preempted; None: it never ran."""

    request: GenerationRequest
    id_task: int
    t_queued: float
    sequence: Sequence | None = None

    @property
    def order(self) -> tuple[int, int]:
        return -self.request.priority, self.id_task


class Admission:
    """Starts requests in order of priority and age, and takes pages from the least urgent when they run out.

    A request starts when a slot is free and the pool has pages for its tokens, some headroom and the next page of
    all that run; later it takes pages one by one. Nobody overtakes a request that waits for memory. The most urgent
    sequence is never preempted, so it ends, then the next one does: everything ends. Nothing is preempted to start
    a request, and what was preempted comes back only after another request ended or was preempted too.
    """

    def __init__(self, limits: EngineLimits) -> None:
        n_pages = -(-limits.n_ctx_total // limits.page_tokens)
        self.n_ctx = min(limits.n_ctx_slot, limits.n_ctx_total)  # of one sequence; never more than the pool
        self.pool = PagePool(n_pages, limits.page_tokens)
        self.slots = SlotTable(limits.n_slots, limits.n_ctx_slot)
        self.running: dict[str, Sequence] = {}
        self.waiting: list[Waiting] = []
        self.n_preemptions = 0
        self._n_vocab = limits.n_vocab
        self._headroom = min(MAX_HEADROOM_PAGES, max(1, n_pages // (HEADROOM_SHARE * limits.n_slots)))
        self._may_admit = False  # something changed since admit() last found nothing to start

    def add(self, waiting: Waiting) -> None:
        """Queue by urgency: a preempted sequence is older than those behind it and so comes before them."""
        bisect.insort(self.waiting, waiting, key=lambda w: w.order)
        self._may_admit = True

    def remove(self, request_id: str) -> Waiting | None:
        """Take a request out of the queue; None when it is not there."""
        for i, waiting in enumerate(self.waiting):
            if waiting.request.id == request_id:
                del self.waiting[i]
                self._may_admit = True
                return waiting
        return None

    def release(self, sequence: Sequence) -> None:
        """A sequence ended that runs, or that was preempted and left the queue."""
        self.running.pop(sequence.request.id, None)
        self.slots.release(sequence)
        sequence.lease.free()
        self._may_admit = True

    def grow(self) -> None:
        """Every decoding sequence gets the page of its next row, at the cost of the least urgent ones."""
        needy = [s for s in self.running.values() if s.n_computed >= s.n_covered]
        for sequence in needy:
            while sequence.request.id in self.running and not sequence.grow(sequence.n_table + 1):
                self._preempt(max(self.running.values(), key=lambda s: s.order))

    def _preempt(self, sequence: Sequence) -> None:
        del self.running[sequence.request.id]
        self.slots.preempt(sequence)
        sequence.preempt()
        self.n_preemptions += 1
        self.add(Waiting(sequence.request, sequence.id_task, sequence.t_queued, sequence))

    def admit(self) -> list[Sequence]:
        """Start or resume waiting requests in order. One that waits for a certain slot lets others pass."""
        if not self._may_admit:
            return []
        self._may_admit = False
        admitted: list[Sequence] = []
        i = 0
        while i < len(self.waiting):
            waiting = self.waiting[i]
            id_slot = waiting.request.id_slot
            slot = self.slots.choose(id_slot, waiting.sequence)
            if slot is None and id_slot >= 0:
                i += 1
                continue
            n_pages = self._pages_to_start(waiting)
            if slot is None or n_pages + self._n_growing() > self.pool.n_free:
                break
            del self.waiting[i]
            sequence = waiting.sequence or self._new_sequence(waiting)
            sequence.grow(n_pages)
            self.slots.take(slot, sequence)
            self.running[waiting.request.id] = sequence
            admitted.append(sequence)
        return admitted

    def _new_sequence(self, waiting: Waiting) -> Sequence:
        longest = self._most_tokens(waiting.request)
        return Sequence(waiting.request, waiting.id_task, waiting.t_queued, self.pool, longest, self._n_vocab)

    def _pages_to_start(self, waiting: Waiting) -> int:
        """For all tokens known so far and the headroom, but no more than the request can ever use."""
        n_tokens = len(waiting.request.prompt) if waiting.sequence is None else waiting.sequence.n_tokens
        most = self.pool.pages_for(self._most_tokens(waiting.request))
        return min(self.pool.pages_for(n_tokens) + self._headroom, most)

    def _n_growing(self) -> int:
        """Running sequences that may need another page: without one for each, they would preempt who comes now."""
        return sum(s.n_table < len(s.page_table) for s in self.running.values())

    def _most_tokens(self, request: GenerationRequest) -> int:
        """Longest context the request can reach; the last generated token is never computed."""
        longest = self.n_ctx - 1
        if request.max_tokens < 0:
            return longest
        return min(longest, len(request.prompt) + max(1, request.max_tokens) - 1)

    def check(self) -> None:
        """AssertionError unless pages, slots, queue and sequences agree. For tests and debugging."""
        self.pool.check()
        sequences = self.slots.sequences()
        assert {s.request.id: s for s in sequences} == self.running
        for s in sequences:
            assert self.slots.slots[s.slot].sequence is s
            assert s.page_table[: s.n_table].tolist() == s.lease.pages
            assert max(s.n_computed, 0 if s.is_decoding else s.n_to_read) <= s.n_table * self.pool.page_tokens
        assert self.pool.n_used == sum(s.n_table for s in sequences)
        assert [w.order for w in self.waiting] == sorted(w.order for w in self.waiting)
        for slot in self.slots.slots:
            assert slot.preempted is None or slot.preempted in [w.sequence for w in self.waiting]
            assert slot.preempted is None or slot.sequence is None
