"""Which windows run in which of llama.cpp's modes.

A first window of every file and KV type shows which modes repeat another bit for bit; the other windows
leave those out. Which kernels run depends on shapes and types only, so one window tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from compat_tests.kl.measure import Job, JobResult, run_jobs, workers
from compat_tests.kl.nudge import nudge
from compat_tests.kl.oracle import modes_for
from compat_tests.kl.texts import Window
from pyjet.native.config import Device, KvType

KV_TYPES: tuple[KvType, ...] = ("f16", "q8_0")
# F16 is the slowest file and its bound is far from its figures, so every second window is enough.
EVERY = {"F16": 2}

Found = dict[tuple[str, str], dict[int, JobResult]]  # (weights, KV type) -> window -> result


def all_jobs(files: dict[str, Path], suite: Sequence[Window], device: Device = "cpu") -> list[Job]:
    """Every window of every file with every KV type; the first one of each kind in all row paths."""
    first = {kind: next(i for i, w in enumerate(suite) if w.kind == kind) for kind in {w.kind for w in suite}}
    return [
        Job(path, weights, kv_type, i, window.tokens, modes_for(kv_type), i == first[window.kind], device=device)
        for weights, path in files.items()
        for kv_type in KV_TYPES
        for i, window in enumerate(suite)
        if i % EVERY.get(weights, 1) == 0
    ]


def remaining(jobs: Sequence[Job], probed: Found, folder: Path) -> Iterator[Job]:
    """What is left after the first windows, in the modes that these have shown to differ.

    Where one mode is left, llama.cpp is to run on the nudged file too, so the first window comes again.
    """
    nudged: dict[str, Path] = {}
    for job in jobs:
        modes = tuple(probed[job.weights, job.kv_type][0].ours)
        if len(modes) > 1:
            if job.window > 0:
                yield replace(job, modes=modes)
            continue
        if job.weights not in nudged:
            nudged[job.weights] = nudge(job.path, folder / f"{job.weights}-nudged.gguf")
        yield replace(job, modes=modes, nudged=nudged[job.weights])


def run_all(
    files: dict[str, Path], suite: Sequence[Window], processes: int, folder: Path, device: Device = "cpu"
) -> Found:
    """Results of all windows, with a progress bar on a terminal. folder: where nudged files are written."""
    found: Found = {}
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    jobs = all_jobs(files, suite, device)
    with workers(processes) as executor, bar:
        task = bar.add_task("windows", total=len(jobs))

        def collect(some: list[Job]) -> None:
            for job, result in run_jobs(executor, some):
                found.setdefault((job.weights, job.kv_type), {})[job.window] = result
                bar.update(task, advance=1, description=f"{job.weights}, {job.kv_type} KV")

        collect([replace(job, probe=True) for job in jobs if job.window == 0])
        rest = list(remaining(jobs, found, folder))
        bar.update(task, total=len(rest) + len(found))
        collect(rest)
    return found
