"""Who runs: the queue, and the slots and pages that running sequences hold."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from pyjet.engine.client import EngineLimits
from pyjet.engine.constraint import Constraint
from pyjet.engine.device_memory import DeviceMemory
from pyjet.engine.host_store import HostStore
from pyjet.engine.output_length import OutputLength
from pyjet.engine.pages import PagePool
from pyjet.engine.prefix_cache import PrefixCache
from pyjet.engine.prefix_tree import CheckpointKind, Match, Tokens
from pyjet.engine.request import GenerationRequest, Reuse
from pyjet.engine.same_prefix import find_leader
from pyjet.engine.sequence import Sequence
from pyjet.engine.slots import SlotTable
from pyjet.engine.stops import plan_stops

# Pages beyond its tokens that a sequence gets at admission. They are how far it comes before it can need more, so
# they bound what a preemption wastes: moving L tokens away and back buys at least 8 pages of answer (512 tokens of 64
# each), seconds of decoding. More would only keep memory from others that could run.
MAX_HEADROOM_PAGES = 8
# In a small pool the headroom of all slots together takes at most this part, or the slots could not be filled.
HEADROOM_SHARE = 4


@dataclass(eq=False)
class Waiting:
    """A request in the queue. ``sequence``: what it was before it was preempted; None: it never ran."""

    request: GenerationRequest
    id_task: int
    t_queued: float
    prompt: Tokens
    sequence: Sequence | None = None
    constraint: Constraint | None = None

    @property
    def order(self) -> tuple[int, int]:
        return -self.request.priority, self.id_task

    @property
    def tokens(self) -> Tokens:
        """All that are known."""
        return self.prompt if self.sequence is None else self.sequence.tokens[: self.sequence.n_tokens]


class Admission:
    """Starts requests in order of priority and age, and takes pages from the least urgent when they run out.

    A request starts when a slot is free and the pool has pages for its tokens, some headroom and what all that run
    are likely to need. Nobody overtakes a request that waits for memory. One whose prompt begins like one that is
    being read waits for these rows instead of computing them too. The most urgent sequence is never preempted, so it
    ends, then the next one does: everything ends. Nothing is preempted to start a request, and what was preempted
    comes back only after another request ended or was preempted too.
    """

    def __init__(self, limits: EngineLimits, memory: DeviceMemory) -> None:
        n_pages = -(-limits.n_ctx_total // limits.page_tokens)
        self.n_ctx = min(limits.n_ctx_slot, limits.n_ctx_total)  # of one sequence; never more than the pool
        self.pool = PagePool(n_pages, limits.page_tokens)
        host = HostStore(limits.host_bytes, memory.page_bytes, memory.state_bytes, memory.host_memory)
        self.cache = PrefixCache(self.pool, limits.n_state_slots, memory, host, limits.max_checkpoints)
        self.slots = SlotTable(limits.n_slots, limits.n_ctx_slot, limits.slot_similarity)
        self.running: dict[str, Sequence] = {}
        self.waiting: list[Waiting] = []
        self.n_preemptions = self.n_hits = 0
        self._limits = limits
        self._lengths = OutputLength()
        self._headroom = min(MAX_HEADROOM_PAGES, max(1, n_pages // (HEADROOM_SHARE * limits.n_slots)))
        # Positions that a step may reach beyond its newest token: drafts that it verifies and those that it makes.
        speculation = limits.speculation
        self._n_ahead = limits.max_spec + speculation.max_draft if speculation.is_on else 0
        self._may_admit = False  # something changed since admit() last found nothing to start

    @property
    def may_start(self) -> bool:
        """Whether somebody waits and something changed since nobody could start."""
        return self._may_admit and bool(self.waiting)

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
        """A sequence ended that runs, or that was preempted and left the queue. What it computed is kept.

        Nobody continues a text whose embedding was wanted: it takes no room from conversations.
        """
        self.running.pop(sequence.request.id, None)
        self.slots.release(sequence)
        if sequence.pool is None:
            self._lengths.add(len(sequence.generated))
            self.cache.keep(sequence)
        else:
            self.cache.drop(sequence)
        self._unpark(sequence)
        self._may_admit = True

    def keep_state(self, sequence: Sequence, kind: CheckpointKind) -> None:
        """A reading sequence is at a place to come back to; who waits for it may start."""
        self.cache.save(sequence, kind)
        self._may_admit = True

    def grow(self) -> None:
        """Every decoding sequence gets the page of its next row, at the cost of the least urgent ones."""
        needy = [s for s in self.running.values() if s.n_computed >= s.n_covered]
        for sequence in needy:
            # By force when nobody else can give way: if the host is full too, rows of those are read again.
            is_forced = len(self.running) == 1
            while self._runs(sequence) and not self.cache.grow(sequence, len(sequence.pages) + 1, force=is_forced):
                self._preempt(max(self.running.values(), key=lambda s: s.order))
                is_forced = True

    def cover(self, sequence: Sequence) -> None:
        """A decoding sequence gets the pages of what it verifies and of drafts to come, as far as there are any.

        Nobody is preempted for that: there are fewer drafts then.
        """
        n_wanted = sequence.n_computed + 1 + len(sequence.verifying) + sequence.n_draft
        if n_wanted <= sequence.n_covered:
            return
        self.cache.grow(sequence, self.pool.pages_for(n_wanted))
        room = sequence.n_covered - sequence.n_computed - 1
        del sequence.verifying[max(0, room) :]
        sequence.n_draft = max(0, min(sequence.n_draft, room - len(sequence.verifying)))

    def _runs(self, sequence: Sequence) -> bool:
        return sequence.request.id in self.running

    def _preempt(self, sequence: Sequence) -> None:
        del self.running[sequence.request.id]
        self.slots.preempt(sequence)
        sequence.preempt(self.cache.keep(sequence, "parked"))
        self.n_preemptions += 1
        prompt = sequence.tokens[: sequence.n_prompt]
        self.add(Waiting(sequence.request, sequence.id_task, sequence.t_queued, prompt, sequence))

    def admit(self) -> list[Sequence]:
        """Start or resume waiting requests in order. One that waits for a certain slot, or for rows that another one
        is about to compute, lets others pass."""
        if not self._may_admit:
            return []
        self._may_admit = False
        admitted: list[Sequence] = []
        i = 0
        while i < len(self.waiting):
            waiting = self.waiting[i]
            id_slot = waiting.request.id_slot
            slot = self.slots.choose(id_slot, waiting.prompt, waiting.sequence)
            if slot is None and id_slot < 0:
                break
            match = self._match(waiting)
            if slot is None or self._waits_for_rows(waiting, match):
                i += 1
                continue
            sequence = self._start(waiting, match)
            if sequence is None:
                break
            del self.waiting[i]
            self.slots.take(slot, sequence)
            self.running[waiting.request.id] = sequence
            admitted.append(sequence)
        return admitted

    def _match(self, waiting: Waiting) -> Match:
        """What is known of a request's tokens. The last one is always computed: its row gives the next token."""
        if waiting.sequence is None and not waiting.request.reuses_prompt:
            return Match(None)
        most = len(waiting.tokens) - 1
        if waiting.sequence is not None and waiting.sequence.pool is not None:
            most = min(most, waiting.sequence.pool.n_skippable)
        return self.cache.match(waiting.tokens, most)

    def _waits_for_rows(self, waiting: Waiting, match: Match) -> bool:
        """Whether another sequence is about to compute more of this prompt than is known of it."""
        if waiting.sequence is not None or not waiting.request.reuses_prompt:
            return False
        priority, gain = waiting.request.priority, self._limits.checkpoint_gap
        leader = find_leader(waiting.prompt, priority, self.running.values(), match.n_tokens, gain)
        if leader is not None:
            leader.sequence.add_shared_stop(leader.n_common)
        return leader is not None

    def _start(self, waiting: Waiting, match: Match) -> Sequence | None:
        """The sequence on its pages, or None when there are not enough."""
        n_pages = self._pages_to_start(waiting)
        wanted = self.cache.n_pages_needed(match, n_pages) + self._pages_to_come()
        # The most urgent one starts when nobody runs, even if rows of preempted ones must be read again for that.
        is_first = not self.running
        if not is_first and wanted > self.pool.n_free and wanted > self.cache.n_available(match):
            return None
        sequence = waiting.sequence or self._new_sequence(waiting)
        swap_seconds = self.cache.swaps.seconds
        if not self.cache.open(sequence, match.place, n_pages, force=is_first):
            # Rather than wait for ever for pages that what it goes on from keeps, it reads everything again.
            match = Match(None)
            if not is_first or not self.cache.open(sequence, None, n_pages, force=True):
                return None
        sequence.swap_seconds += self.cache.swaps.seconds - swap_seconds
        self._unpark(sequence)
        self._note_start(sequence, match)
        return sequence

    def _note_start(self, sequence: Sequence, match: Match) -> None:
        if sequence.is_resumed:
            return
        sequence.n_cached = sequence.n_reached = match.n_tokens
        if sequence.request.cache_prompt:
            sequence.reuse = self._reuse(match)
        self.n_hits += match.n_tokens > 0
        if sequence.pool is not None:
            return
        if not self.cache.has_state:
            sequence.stops = [sequence.n_prompt]
            return
        stops = plan_stops(
            sequence.n_prompt,
            sequence.request.boundaries,
            match.n_tokens,
            match.n_common,
            step=self._limits.checkpoint_step,
            gap=self._limits.checkpoint_gap,
            max_tail=self._limits.max_spec,
        )
        sequence.stops, sequence.shared_stops = list(stops.at), set(stops.shared)
        sequence.tail_from = stops.tail_from

    def _reuse(self, match: Match) -> Reuse:
        if match.place is None:
            return Reuse(n_known=match.n_common)
        kind = match.place.checkpoint.kind if self.cache.has_state else "pages"
        return Reuse(match.n_tokens, kind, match.n_common)

    def _unpark(self, sequence: Sequence) -> None:
        if sequence.parked is not None:
            self.cache.unpark(sequence.parked)
            sequence.parked = None

    def _new_sequence(self, waiting: Waiting) -> Sequence:
        longest = self._most_tokens(waiting.request)
        page_tokens, n_vocab = self.pool.page_tokens, self._limits.n_vocab
        sequence = Sequence(
            waiting.request, waiting.id_task, waiting.t_queued, longest, page_tokens, n_vocab, waiting.prompt
        )
        sequence.constraint = waiting.constraint
        return sequence

    def _pages_to_start(self, waiting: Waiting) -> int:
        """For all tokens known so far, drafts and the headroom, but no more than the request can ever use."""
        most = self.pool.pages_for(self._most_tokens(waiting.request))
        return min(self.pool.pages_for(len(waiting.tokens) + self._n_ahead) + self._headroom, most)

    def _pages_to_come(self) -> int:
        """Pages that running sequences are likely to need: without them, they would preempt who comes now."""
        return sum(self._pages_wanted(s) for s in self.running.values())

    def _pages_wanted(self, sequence: Sequence) -> int:
        n_held = len(sequence.pages)
        n_left = self._lengths.expected - len(sequence.generated)
        likely = self.pool.pages_for(sequence.n_tokens + n_left + self._n_ahead) - n_held
        return min(max(1, min(likely, self._headroom)), len(sequence.page_table) - n_held)

    def _most_tokens(self, request: GenerationRequest) -> int:
        """Longest context the request can reach; the last generated token is never computed."""
        longest = self.n_ctx - 1
        if request.pooling is not None:
            return len(request.prompt)
        if request.max_tokens < 0:
            return longest
        return min(longest, len(request.prompt) + max(1, request.max_tokens) - 1)

    def check(self) -> None:
        """AssertionError unless pages, slots, queue and sequences agree. For tests and debugging."""
        sequences = self.slots.sequences()
        assert {s.request.id: s for s in sequences} == self.running
        self.pool.check([page for s in sequences for page in s.pages] + self.cache.held_pages())
        self.cache.check(sequences)
        for s in sequences:
            assert self.slots.slots[s.slot].sequence is s
            assert s.page_table[: len(s.pages)].tolist() == s.pages
            assert max(s.n_computed, 0 if s.is_decoding else s.n_to_read) <= s.n_covered
            assert all(s.n_computed < stop <= s.n_to_read for stop in s.stops)
        assert [w.order for w in self.waiting] == sorted(w.order for w in self.waiting)
        for slot in self.slots.slots:
            assert slot.preempted is None or slot.preempted in [w.sequence for w in self.waiting]
            assert slot.preempted is None or slot.sequence is None
