"""Saving, restoring and erasing what slots hold: files on threads of their own, copies between two steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyjet.engine.client import SlotAction, SlotActionResult
from pyjet.engine.slot_contents import SlotContents
from pyjet.engine.slot_file import SlotFileError, SlotFileOwner, read_slot_file, write_slot_file
from pyjet.engine.snapshot import Snapshot

NOTHING_TO_SAVE = "the slot holds nothing"
NO_ROOM = "there is no room for so many tokens"


@dataclass(frozen=True)
class SlotJob:
    """``number`` is the caller's and comes back with the answer. ``snapshot``: what was read for a restore."""

    number: int
    id_slot: int
    action: SlotAction
    path: str | None = None
    snapshot: Snapshot | None = None
    n_bytes: int = 0
    t_start: float = field(default_factory=time.perf_counter)


# The result, or a sentence that says why there is none.
SlotAnswer = Callable[[int, "SlotActionResult | str"], None]


class SlotJobs:
    """Runs jobs when their slots are free. ``post`` hands a job back to the engine's thread."""

    def __init__(
        self, slots: SlotContents, owner: SlotFileOwner, answer: SlotAnswer, post: Callable[[SlotJob], object]
    ) -> None:
        self._slots = slots
        self._owner = owner
        self._answer = answer
        self._post = post
        self._waiting: list[SlotJob] = []

    def add(self, job: SlotJob) -> None:
        self._waiting.append(job)
        self.run()

    def run(self) -> None:
        """Do what can be done now."""
        ready = [job for job in self._waiting if self._slots.is_free(job.id_slot)]
        for job in ready:
            self._waiting.remove(job)
            self._start(job)

    def fail(self, message: str) -> None:
        """Nothing runs any more."""
        for job in self._waiting:
            self._answer(job.number, message)
        self._waiting.clear()

    def _start(self, job: SlotJob) -> None:
        if job.action == "erase":
            self._done(job, self._slots.erase(job.id_slot))
        elif job.action == "save":
            snapshot = self._slots.snapshot(job.id_slot)
            if snapshot is None:
                self._answer(job.number, NOTHING_TO_SAVE)
            else:
                self._on_a_thread(self._save, job, snapshot)
        elif job.snapshot is None:
            self._on_a_thread(self._read, job)
        elif self._slots.put(job.id_slot, job.snapshot):
            self._done(job, len(job.snapshot.tokens))
        else:
            self._answer(job.number, NO_ROOM)

    def _on_a_thread(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name="pyjet-slot-file", daemon=True).start()

    def _save(self, job: SlotJob, snapshot: Snapshot) -> None:
        try:
            n_bytes = write_slot_file(Path(job.path or ""), self._owner, snapshot)
        except OSError as error:
            self._answer(job.number, f"the file cannot be written: {error.strerror or error}")
        else:
            self._done(job, len(snapshot.tokens), n_bytes)

    def _read(self, job: SlotJob) -> None:
        try:
            snapshot, n_bytes = read_slot_file(Path(job.path or ""), self._owner)
        except SlotFileError as error:
            self._answer(job.number, str(error))
        else:
            self._post(SlotJob(job.number, job.id_slot, "restore", job.path, snapshot, n_bytes, job.t_start))

    def _done(self, job: SlotJob, n_tokens: int, n_bytes: int = 0) -> None:
        ms = (time.perf_counter() - job.t_start) * 1e3
        self._answer(job.number, SlotActionResult(n_tokens, n_bytes or job.n_bytes, ms))
