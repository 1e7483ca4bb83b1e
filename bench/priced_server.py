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

#: rows: milliseconds of a 27B model in Q4_K on an NVIDIA H200 with an empty context, and with four of 23,000 tokens.
#: Half of them are measured, the others in proportion to what they were when 512 rows took 148 and 187 ms.
MILLISECONDS = {
    **{1: (6.4, 6.9), 4: (7.0, 8.5), 8: (7.4, 9.2), 12: (7.8, 9.9), 16: (8.4, 11.1), 24: (9.5, 13.7)},
    **{32: (11.4, 15), 48: (16, 21), 64: (19, 26), 96: (38, 45), 128: (43, 52), 192: (55, 78), 256: (76, 99)},
    **{384: (97, 130), 512: (128, 165), 768: (183, 248), 1024: (240, 325)},
}
STAIRS_TO = 256  # rows: a step takes as long as the next one of the table; one of more rows, by passes of PASS_ROWS
PASS_ROWS = 64
MAX_ROWS = 1024  # of a step, as on a GPU
STATE_SECONDS = 0.003  # for 150 MB to or from the host
WAITED_FROM = 20_000
TOKEN = 100  # which every row chooses


def price(n_rows: int) -> float:
    """Seconds of a step in long contexts."""
    if n_rows <= STAIRS_TO:
        n_rows = min(count for count in MILLISECONDS if count >= n_rows)
    else:
        n_rows = -(-n_rows // PASS_ROWS) * PASS_ROWS
    return float(np.interp(n_rows, list(MILLISECONDS), [long for _, long in MILLISECONDS.values()])) * 1e-3


class PricedStepper(NoMemory):
    """Waits as long as a step takes."""

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        begin = time.perf_counter()
        n_rows = len(batch.tokens)
        if meanwhile is not None:
            meanwhile()
        if batch.positions.min() >= WAITED_FROM:
            self.wait(begin + price(n_rows) - time.perf_counter())
        none = np.empty((0, 0), np.float32)
        tokens = np.full(n_rows, TOKEN, np.int32)
        return StepResult(none, none, tokens, tokens, price(n_rows) * 1e6)

    def wait(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def state_read(self, *_: Any) -> None:
        self.wait(STATE_SECONDS)

    state_write = state_read

    def close(self) -> None:
        pass


def calibrated() -> tuple[tuple[int, float], ...]:
    """(rows, seconds) that the engine would measure at the start."""
    return tuple((rows, empty * 1e-3) for rows, (empty, _) in MILLISECONDS.items() if rows < MAX_ROWS)


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
