"""The runs behind pyjet bench: the same tasks on pyjet's engine and on llama.cpp."""

from __future__ import annotations

import time
from collections.abc import Sequence as Items
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pyjet.model.reader import Model
from pyjet.native.config import Device, KvType

from .llama_cpp import LlamaContext, LlamaModel
from .sequence import Sequence, open_engine

MAX_ROWS = 512  # rows of one step, in both engines
DECODE_PROMPT = 64  # tokens in the context before decoding starts
SEED = 1


@dataclass(frozen=True)
class Task:
    """What is timed: "prefill" of `tokens`, or "decode" of `tokens`."""

    name: str
    tokens: int

    @property
    def context(self) -> int:
        return self.tokens + (DECODE_PROMPT if self.name == "decode" else 0)


class SpeedSource(Protocol):
    """One engine with one model."""

    name: str
    device_name: str

    def run(self, task: Task) -> float:
        """Do the task on an empty context; returns tokens per second."""
        ...

    def close(self) -> None: ...


def random_tokens(n_vocab: int, count: int) -> npt.NDArray[np.int32]:
    """The same tokens for every engine and run."""
    return np.random.default_rng(SEED).integers(0, n_vocab, count, dtype=np.int32)


class PyjetSpeed:
    name = "pyjet"

    def __init__(self, model: Model, n_ctx: int, kv: str, n_threads: int, device: str):
        self._engine = open_engine(
            model,
            n_ctx,
            max_rows=MAX_ROWS,
            kv_type=cast(KvType, kv),
            n_threads=n_threads,
            device=cast(Device, device),
        )
        self.device_name = self._engine.info().device_name
        self._tokens = random_tokens(model.hyperparams.n_vocab, n_ctx)

    def run(self, task: Task) -> float:
        sequence = Sequence(self._engine, MAX_ROWS)
        if task.name == "prefill":
            return _rate(task, lambda: sequence.append(self._tokens[: task.tokens]))
        token = int(sequence.append(self._tokens[:DECODE_PROMPT])[-1].argmax())

        def decode() -> None:
            nonlocal token
            for _ in range(task.tokens):
                token = sequence.next_token(token)

        return _rate(task, decode)

    def close(self) -> None:
        self._engine.close()


class LlamaSpeed:
    name = "llama.cpp"
    device_name = "CPU"

    def __init__(self, path: Path, n_ctx: int, kv: str, n_threads: int):
        self._model = LlamaModel(path)
        self._n_ctx, self._kv, self._n_threads = n_ctx, kv, n_threads
        self._tokens = random_tokens(self._model.n_vocab, n_ctx)

    def run(self, task: Task) -> float:
        with LlamaContext(self._model, self._n_ctx, self._kv, self._n_threads) as context:
            if task.name == "prefill":
                return _rate(task, lambda: context.decode(self._tokens[: task.tokens], all_logits=False))
            logits = context.decode(self._tokens[:DECODE_PROMPT], all_logits=False)

            def decode() -> None:
                nonlocal logits
                for _ in range(task.tokens):
                    logits = context.decode(logits[-1:].argmax(-1).astype(np.int32), all_logits=False)

            return _rate(task, decode)

    def close(self) -> None:
        self._model.close()


class _Work(Protocol):
    def __call__(self) -> object: ...


def _rate(task: Task, work: _Work) -> float:
    started = time.perf_counter()
    work()
    return task.tokens / (time.perf_counter() - started)


def measure(sources: Items[SpeedSource], tasks: Items[Task], repeat: int) -> dict[str, dict[Task, list[float]]]:
    """tok/s of every run: engine name -> task -> values. One untimed round first; the engines take turns."""
    speeds: dict[str, dict[Task, list[float]]] = {source.name: {task: [] for task in tasks} for source in sources}
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("warming up", total=(repeat + 1) * len(tasks) * len(sources))
        for round_number in range(repeat + 1):
            for task in tasks:
                for source in sources:
                    progress.update(bar, description=f"{task.name} {task.tokens}, {source.name}")
                    speed = source.run(task)
                    if round_number > 0:
                        speeds[source.name][task].append(speed)
                    progress.advance(bar)
    return speeds
