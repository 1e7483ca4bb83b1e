"""What slots hold between requests: copied out, put back, forgotten."""

from __future__ import annotations

from pyjet.engine.admission import Admission
from pyjet.engine.slots import Slot
from pyjet.engine.snapshot import Snapshot


class SlotContents:
    """Of all slots of an engine, which are counted modulo their number."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def _slot(self, id_slot: int) -> Slot:
        slots = self._admission.slots.slots
        return slots[id_slot % len(slots)]

    def is_free(self, id_slot: int) -> bool:
        """Whether nothing runs in a slot, or comes back to it."""
        slot = self._slot(id_slot)
        return slot.sequence is None and slot.preempted is None

    def snapshot(self, id_slot: int) -> Snapshot | None:
        """What a slot holds, as far as it is kept."""
        return self._admission.cache.snapshot(self._slot(id_slot).held)

    def put(self, id_slot: int, snapshot: Snapshot) -> bool:
        """A slot holds what was saved; False: there is no room, or the slot's context is too small."""
        if len(snapshot.tokens) >= self._admission.n_ctx or not self._admission.cache.put(snapshot):
            return False
        self._slot(id_slot).hold(snapshot.tokens)
        return True

    def erase(self, id_slot: int) -> int:
        """Forget what a slot holds; how many tokens that were."""
        slot = self._slot(id_slot)
        n_tokens = len(slot.held)
        self._admission.cache.erase(slot.held)
        slot.hold(slot.held[:0])
        return n_tokens
