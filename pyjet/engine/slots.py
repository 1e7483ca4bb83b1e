"""llama-server's slots: which one a request takes, and what /slots shows about each."""

from __future__ import annotations

from dataclasses import replace

from pyjet.engine.client import SlotView
from pyjet.engine.sequence import Sequence


class Slot:
    """A place for one sequence; its number is also its recurrent-state slot."""

    def __init__(self, slot_id: int, n_ctx: int) -> None:
        self.id = slot_id
        self.sequence: Sequence | None = None
        self.last_used = 0  # release number; larger is later
        self._last_view = SlotView(id=slot_id, n_ctx=n_ctx)

    def view(self, *, with_tokens: bool) -> SlotView:
        """What /slots shows; an idle slot shows its last request."""
        if self.sequence is not None:
            return self._busy_view(self.sequence, with_tokens=with_tokens)
        return self._last_view if with_tokens else replace(self._last_view, prompt=(), generated=())

    def release(self, number: int) -> None:
        """The sequence ended; ``number`` grows with every release."""
        if self.sequence is not None:
            view = self._busy_view(self.sequence, with_tokens=True)
            self._last_view = replace(view, is_processing=False, has_next_token=False)
            self.sequence = None
            self.last_used = number

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
            n_prompt_processed=min(sequence.n_computed, sequence.n_prompt),
            n_cached=0,
            n_decoded=n_decoded,
            n_remain=-1 if request.max_tokens < 0 else request.max_tokens - n_decoded,
            has_next_token=True,
            max_tokens=request.max_tokens,
            n_probs=request.n_probs,
            sampling=request.sampling,
            prompt=request.prompt if with_tokens else (),
            generated=tuple(sequence.generated) if with_tokens else (),
        )


class SlotTable:
    """All slots of an engine."""

    def __init__(self, n_slots: int, n_ctx: int) -> None:
        self.slots = [Slot(i, n_ctx) for i in range(n_slots)]
        self._n_releases = 0

    def __len__(self) -> int:
        return len(self.slots)

    def choose(self, id_slot: int) -> Slot | None:
        """The wanted slot (modulo their number) or the least recently used one, highest number first; None: busy."""
        if id_slot >= 0:
            wanted = self.slots[id_slot % len(self.slots)]
            return wanted if wanted.sequence is None else None
        idle = [slot for slot in self.slots if slot.sequence is None]
        return min(idle, key=lambda slot: (slot.last_used, -slot.id), default=None)

    def release(self, slot_id: int) -> None:
        self._n_releases += 1
        self.slots[slot_id].release(self._n_releases)

    def sequences(self) -> list[Sequence]:
        """Running sequences, oldest first."""
        running = [slot.sequence for slot in self.slots if slot.sequence is not None]
        return sorted(running, key=lambda sequence: sequence.id_task)
