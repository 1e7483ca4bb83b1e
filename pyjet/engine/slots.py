"""llama-server's slots: which one a request takes, and what /slots shows about each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyjet.engine.client import SlotView
from pyjet.engine.prefix_tree import Tokens, n_equal
from pyjet.engine.request import Breakers
from pyjet.engine.sequence import Sequence


class Slot:
    """A place for one sequence."""

    def __init__(self, slot_id: int, n_ctx: int) -> None:
        self.id = slot_id
        self.sequence: Sequence | None = None  # runs here
        self.preempted: Sequence | None = None  # ran here, waits, and comes back if nobody takes its place
        self.last_used = 0  # release number; larger is later
        self.held: Tokens = np.zeros(0, np.int32)  # what its last sequence had computed
        self._last_view = SlotView(id=slot_id, n_ctx=n_ctx)

    def view(self, *, with_tokens: bool) -> SlotView:
        """What /slots shows; an idle slot shows its last request."""
        if (sequence := self.sequence or self.preempted) is not None:
            return self._busy_view(sequence, with_tokens=with_tokens)
        return self._last_view if with_tokens else replace(self._last_view, prompt=(), generated=())

    def leave(self, sequence: Sequence, number: int) -> None:
        """The sequence ended, running or preempted; ``number`` grows with every release."""
        view = self._busy_view(sequence, with_tokens=True)
        # As at llama-server, the work's numbers go and what the slot holds stays.
        self._last_view = replace(
            view, is_processing=False, has_next_token=False, n_prompt_processed=0, n_decoded=0, n_remain=-1
        )
        self.held = sequence.tokens[: sequence.n_reached]
        self.sequence = self.preempted = None
        self.last_used = number

    def hold(self, tokens: Tokens) -> None:
        """It holds what no request of this slot computed: a restored file, or nothing."""
        self.held = tokens
        self._last_view = SlotView(id=self.id, n_ctx=self._last_view.n_ctx, n_tokens=len(tokens))

    def _busy_view(self, sequence: Sequence, *, with_tokens: bool) -> SlotView:
        request = sequence.request
        n_decoded = len(sequence.generated)
        return SlotView(
            id=self.id,
            n_ctx=self._last_view.n_ctx,
            is_processing=True,
            id_task=sequence.id_task,
            request_id=request.id,
            n_prompt=sequence.n_prompt,
            n_tokens=sequence.n_computed,
            n_prompt_processed=max(0, min(sequence.n_reached, sequence.n_prompt) - sequence.n_cached),
            n_cached=sequence.n_cached,
            n_decoded=n_decoded,
            n_remain=-1 if sequence.max_tokens is None else sequence.max_tokens - n_decoded,
            has_next_token=True,
            max_tokens=request.max_tokens,
            n_probs=request.n_probs,
            sampling=replace(request.sampling, dry_breakers=Breakers(), infill_tokens=None),  # these are large
            prompt=request.prompt if with_tokens else (),
            generated=tuple(sequence.generated) if with_tokens else (),
        )


class SlotTable:
    """All slots of an engine."""

    def __init__(self, n_slots: int, n_ctx: int, similarity: float) -> None:
        self.slots = [Slot(i, n_ctx) for i in range(n_slots)]
        self._similarity = similarity
        self._n_releases = 0

    def __len__(self) -> int:
        return len(self.slots)

    def choose(self, id_slot: int, prompt: Tokens, preempted: Sequence | None = None) -> Slot | None:
        """A free slot or None: the wanted one (modulo their number); else the one that ``preempted`` had; else the one
        whose last sequence the prompt has most in common with, if that is more than a share ``similarity`` of it; else
        the least recently used one, highest number first, and last of all one that a preempted sequence had."""
        if id_slot >= 0:
            wanted = self.slots[id_slot % len(self.slots)]
            return wanted if wanted.sequence is None else None
        if preempted is not None and self.slots[preempted.slot].sequence is None:
            return self.slots[preempted.slot]
        idle = [slot for slot in self.slots if slot.sequence is None]
        if (alike := self._most_alike(idle, prompt)) is not None:
            return alike
        return min(idle, key=lambda slot: (slot.preempted is not None, slot.last_used, -slot.id), default=None)

    def _most_alike(self, idle: list[Slot], prompt: Tokens) -> Slot | None:
        if self._similarity <= 0:
            return None
        common = [(n_equal(slot.held, prompt), slot.last_used, slot) for slot in idle if slot.preempted is None]
        n, _, slot = max(common, key=lambda entry: entry[:2], default=(0, 0, None))
        return slot if n > self._similarity * len(prompt) else None

    def take(self, slot: Slot, sequence: Sequence) -> None:
        """The sequence runs in a slot that is free; a preempted one that had it loses its place."""
        if sequence.slot >= 0 and self.slots[sequence.slot].preempted is sequence:
            self.slots[sequence.slot].preempted = None
        slot.preempted = None
        slot.sequence = sequence
        sequence.slot = slot.id

    def preempt(self, sequence: Sequence) -> None:
        slot = self.slots[sequence.slot]
        slot.sequence, slot.preempted = None, sequence

    def release(self, sequence: Sequence) -> None:
        """The sequence ended. A preempted one may have lost its slot already."""
        slot = self.slots[sequence.slot]
        if sequence is slot.sequence or sequence is slot.preempted:
            self._n_releases += 1
            slot.leave(sequence, self._n_releases)

    def sequences(self) -> list[Sequence]:
        """Running sequences, oldest first."""
        running = [slot.sequence for slot in self.slots if slot.sequence is not None]
        return sorted(running, key=lambda sequence: sequence.id_task)
