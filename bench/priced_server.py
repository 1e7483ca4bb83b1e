"""pyjet-server on a device that only takes time: ``python -m bench.priced_server FOLDER [options]``.

A step computes nothing and takes as long as a GPU's would, so everything else takes what it takes beside one, on any
machine. Steps with rows before position WAITED_FROM take no time: conversations are read at once. When the server ends
the folder has `submits.json`, the times at which requests were handed to the engine, and `steps.json`.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.step_log import LoggedStepper, NoMemory, Progress
from pyjet.engine.calibration import ROWS
from pyjet.engine.client import EngineClient, EngineLimits, RequestStream
from pyjet.engine.core import Stepper
from pyjet.engine.request import GenerationRequest
from pyjet.engine.settings import EngineSettings
from pyjet.model.reader import load_model
from pyjet.native import StepBatch, StepResult
from pyjet.server.app import create_app
from pyjet.server.http import HttpServer
from pyjet.server.option_parser import parse
from pyjet.server.startup import Startup

PASS_ROWS = 64  # that one pass over the weights computes
SMALL_ROWS = 24  # of steps that take less
MAX_ROWS = 1024  # of a step, as on a GPU
STATE_SECONDS = 0.003  # for 150 MB to or from the host
WAITED_FROM = 20_000
TOKEN = 100  # which every row chooses


def price(n_rows: int, depth: int = 23_000) -> float:
    """Seconds of a step of a 27B model in Q4_K on an NVIDIA H200, sequences at position ``depth``: a stair for each
    pass over the weights, and attention. 26 ms for 64 rows, 0.26 s for 800, at 0 0.13 s for 512."""
    passes = -(-n_rows // PASS_ROWS) if n_rows > SMALL_ROWS else n_rows / PASS_ROWS
    return 0.005 + 0.0142 * passes + 4.1e-9 * depth * n_rows


class PricedStepper(NoMemory):
    """Waits as long as a step takes."""

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        begin = time.perf_counter()
        n_rows = len(batch.tokens)
        if meanwhile is not None:
            meanwhile()
        if batch.positions.min() >= WAITED_FROM:
            time.sleep(max(0.0, begin + price(n_rows) - time.perf_counter()))
        none = np.empty((0, 0), np.float32)
        tokens = np.full(n_rows, TOKEN, np.int32)
        return StepResult(none, none, tokens, tokens, price(n_rows) * 1e6)

    def state_read(self, *_: Any) -> None:
        time.sleep(STATE_SECONDS)

    state_write = state_read

    def close(self) -> None:
        pass


def calibrated() -> tuple[tuple[int, float], ...]:
    """What the engine would measure at the start."""
    return tuple((rows, price(rows, depth=0)) for rows in ROWS if rows < MAX_ROWS)


def make_priced(path: Path, settings: EngineSettings, _: Progress) -> tuple[Stepper, EngineLimits]:
    """An EngineFactory, once it has the path of the log."""
    limits = settings.limits(load_model(settings.model_path).hyperparams.n_vocab)
    return LoggedStepper(PricedStepper(), path), replace(limits, max_rows=MAX_ROWS, step_seconds=calibrated())


class NotedEngine:
    """Passes everything on; `submits` are the times of requests."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self.submits: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: GenerationRequest) -> RequestStream:
        stream = self._engine.submit(request)
        self.submits.append(time.perf_counter())
        return stream


def main() -> None:
    folder, options = Path(sys.argv[1]), parse(sys.argv[2:]).options
    startup = Startup(options, factory=partial(make_priced, folder / "steps.json"))
    service = startup.load()
    noted = NotedEngine(service.engine)
    service.engine = noted  # type: ignore[assignment]
    server = HttpServer(create_app(service, options), options)
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.run(on_stop=startup.close)
    (folder / "submits.json").write_text(json.dumps(noted.submits), encoding="utf-8")


if __name__ == "__main__":
    main()
