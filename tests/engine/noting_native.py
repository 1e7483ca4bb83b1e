"""A fake device that writes down steps and copies of states, and says which copies came while a step computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyjet.engine.core import EngineCore
from tests.engine.core_run import Run
from tests.engine.fake_native import FakeNative


class NotingNative(FakeNative):
    """``log``: "step", "copy", "read" and "write"; "read beside" and "write beside" while a step computes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.log: list[str] = []

    def step(self, batch: Any, meanwhile: Any = None) -> Any:
        result = super().step(batch, meanwhile)
        self.log.append("step")
        return result

    def _note(self, what: str) -> None:
        self.log.append(what if self.computing is None else f"{what} beside")

    def state_copy(self, from_slot: int, to_slot: int) -> None:
        self._note("copy")
        super().state_copy(from_slot, to_slot)

    def state_read(self, slot: int, out: np.ndarray | None = None) -> np.ndarray:
        self._note("read")
        return super().state_read(slot, out)

    def state_write(self, slot: int, data: np.ndarray) -> None:
        self._note("write")
        super().state_write(slot, data)


def noting_run(**limits: Any) -> tuple[Run, NotingNative]:
    run = Run(**limits)
    run.native = native = NotingNative(run.limits)
    run.core = EngineCore(run.limits, native)
    return run, native


def idle(run: Run) -> None:
    """Time until the next request."""
    while run.core.prepare():
        run.core.check()
    run.core.check()
