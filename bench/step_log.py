"""A stepper that writes down when each step began and ended, wherever the engine's process runs it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pyjet.engine.build import EngineFactory, build_native
from pyjet.engine.client import EngineLimits
from pyjet.engine.core import Stepper
from pyjet.engine.settings import EngineSettings
from pyjet.native import ROW_SAMPLE, NativeEngine, StepBatch, StepResult
from pyjet.native.structs import MAX_DRAFT

CALIBRATION_ROUNDS = 20_000
STEP_COLUMNS = ("rows", "sampled", "begin", "end", "step_us", "device_us")
DRAFT = (100, np.int32), (0.8, np.float32)  # each draft that nothing computes, and its probability
Progress = Callable[[str, int, int], "bool | None"]


class LoggedStepper:
    """Passes steps on. `close` writes the log as JSON: the device's name and one list per column.

    Of copies of states to the host ("out") and back ("in") there are `copy`, `copy_begin` and `copy_end`: one that lies
    between a step's `begin` and `end` took none of the device's time.
    """

    def __init__(self, stepper: Stepper, path: Path) -> None:
        self._stepper = stepper
        self._path = path
        self._rows: list[tuple[int, int, float, float, float, float]] = []
        self._copies: list[tuple[str, float, float]] = []
        self._op_us = 0.0

    def __getattr__(self, name: str) -> Any:
        """Copies of pages, and inside the device, which are not written down."""
        return getattr(self._stepper, name)

    def state_read(self, slot: int, out: np.ndarray | None = None) -> np.ndarray:
        begin = time.perf_counter()
        data = self._stepper.state_read(slot, out)
        self._copies.append(("out", begin, time.perf_counter()))
        return data

    def state_write(self, slot: int, data: np.ndarray) -> None:
        begin = time.perf_counter()
        self._stepper.state_write(slot, data)
        self._copies.append(("in", begin, time.perf_counter()))

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        n_sampled = 0

        def look() -> None:
            """While the step computes: between two steps it would count as the engine's own time."""
            nonlocal n_sampled
            n_sampled = int(np.count_nonzero(batch.row_flags & ROW_SAMPLE))
            if meanwhile is not None:
                meanwhile()

        begin = time.perf_counter()
        result = self._stepper.step(batch, look)
        end = time.perf_counter()
        self._rows.append((len(batch.tokens), n_sampled, begin, end, result.step_us, self._device_us()))
        return result

    def _device_us(self) -> float:
        """Microseconds that the ops of the last step took, of an engine with profile=True; else 0."""
        if not isinstance(self._stepper, NativeEngine) or not self._stepper.config.profile:
            return 0.0
        before, self._op_us = self._op_us, sum(op.total_us for op in self._stepper.op_times())
        return self._op_us - before

    def close(self) -> None:
        device = self._stepper.info().device_name if isinstance(self._stepper, NativeEngine) else "none"
        columns: dict[str, list[Any]] = dict(zip(STEP_COLUMNS, map(list, zip(*self._rows))))
        for i, name in enumerate(("copy", "copy_begin", "copy_end")):
            columns[name] = [copy[i] for copy in self._copies]
        self._path.write_text(json.dumps({"device": device, **columns}), encoding="utf-8")
        self._stepper.close()


class NoMemory:
    """Pages and states that hold nothing."""

    state_bytes = page_bytes = 1
    copies_beside_steps = True

    def host_memory(self, n_bytes: int) -> np.ndarray:
        return np.zeros(n_bytes, np.uint8)

    def _nothing(self, *_: Any) -> None:
        pass

    state_commit = state_copy = state_read = state_write = pages_copy = pages_read = pages_write = _nothing


class BusyStepper(NoMemory):
    """Computes no model. Keeps a core busy for a while without the GIL, as a host does that waits for a GPU."""

    def __init__(self, seconds: float) -> None:
        begin = time.perf_counter()
        self._burn(CALIBRATION_ROUNDS)
        self._rounds = max(1, int(CALIBRATION_ROUNDS * seconds / (time.perf_counter() - begin)))

    def _burn(self, rounds: int) -> None:
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", rounds)

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        begin = time.perf_counter()
        if meanwhile is not None:
            meanwhile()
        self._burn(self._rounds)
        none = np.empty((0, 0), np.float32)
        tokens = np.full(len(batch.tokens), 100, np.int32)
        n_drafting = 0 if batch.row_next is None else len(batch.seqs)
        drafts, probs = (np.full((n_drafting, MAX_DRAFT), value, dtype) for value, dtype in DRAFT)
        return StepResult(none, none, tokens, tokens, (time.perf_counter() - begin) * 1e6, drafts, probs)

    def close(self) -> None:
        pass


def logged(path: Path, stub_ms: float = 0.0) -> EngineFactory:
    """An EngineFactory, picklable; with `stub_ms` no model is computed."""
    return partial(_make, path, stub_ms)


def _make(path: Path, stub_ms: float, settings: EngineSettings, progress: Progress) -> tuple[Stepper, EngineLimits]:
    if stub_ms > 0:
        return LoggedStepper(BusyStepper(stub_ms * 1e-3), path), settings.limits(248_320)
    stepper, limits = build_native(settings, progress)
    return LoggedStepper(stepper, path), limits


def read_log(path: Path) -> dict[str, Any]:
    """The log with its columns as arrays."""
    log = json.loads(path.read_text(encoding="utf-8"))
    return {key: value if key == "device" else np.array(value) for key, value in log.items()}
