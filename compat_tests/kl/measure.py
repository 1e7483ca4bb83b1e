"""Run both engines on every window, in several processes of one thread each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from cli.llama_cpp import LlamaModel, Tokens
from compat_tests.kl.divergence import Floats, Sample, compare, log_softmax
from compat_tests.kl.oracle import distinct, llama_logits
from compat_tests.kl.pyjet_logits import MAIN_PATH, ROW_PATHS, pyjet_logits, same_bits
from pyjet.model.reader import Model, load_model
from pyjet.native.config import Device, KvType


@dataclass(frozen=True)
class Job:
    """One window of one file with one KV type.

    modes: llama.cpp's modes to run. probe: drop those that repeat another bit for bit. nudged: the file
    that stands for llama.cpp's noise where only one mode is left. all_paths: pyjet in every row path.
    device: pyjet's; llama.cpp always runs on the CPU.
    """

    path: Path
    weights: str
    kv_type: KvType
    window: int
    tokens: Tokens
    modes: tuple[str, ...]
    all_paths: bool
    probe: bool = False
    nudged: Path | None = None
    device: Device = "cpu"


@dataclass(frozen=True)
class JobResult:
    own: dict[tuple[str, str], Sample]  # pair of llama.cpp's modes -> what they differ by
    ours: dict[str, Sample]  # llama.cpp's mode -> pyjet against it
    nudged: Sample | None  # llama.cpp on the nudged file against itself on the file
    paths_equal: bool  # pyjet's row paths that ran gave the same bits


@lru_cache(maxsize=1)
def _open(path: Path) -> Model:
    return load_model(path)


@lru_cache(maxsize=2)  # the file and its nudged copy
def _open_llama(path: Path) -> LlamaModel:
    return LlamaModel(path)


def run_job(job: Job) -> JobResult:
    """Evaluate one window with llama.cpp's modes and with pyjet, and compare them."""
    row_paths = ROW_PATHS if job.all_paths else [MAIN_PATH]
    paths = pyjet_logits(_open(job.path), job.tokens, job.kv_type, row_paths, job.device)
    ours = log_softmax(paths[MAIN_PATH])
    logits = {mode: llama_logits(_open_llama(job.path), job.tokens, mode, job.kv_type) for mode in job.modes}
    theirs = {mode: log_softmax(rows) for mode, rows in (distinct(logits) if job.probe else logits).items()}
    return JobResult(
        own={(a, b): compare(theirs[a], theirs[b]) for a, b in combinations(theirs, 2)},
        ours={mode: compare(rows, ours) for mode, rows in theirs.items()},
        nudged=_nudged(job, job.nudged, theirs[job.modes[0]]) if job.nudged else None,
        paths_equal=same_bits(paths),
    )


def _nudged(job: Job, path: Path, base: Floats) -> Sample:
    """The job's one mode on the nudged file against the same mode on the file."""
    rows = llama_logits(_open_llama(path), job.tokens, job.modes[0], job.kv_type)
    return compare(base, log_softmax(rows))


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes for jobs; on an error the jobs that have not begun are dropped."""
    executor = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


def run_jobs(executor: ProcessPoolExecutor, jobs: list[Job]) -> Iterator[tuple[Job, JobResult]]:
    """Results as they come."""
    running = {executor.submit(run_job, job): job for job in jobs}
    for future in as_completed(running):
        yield running[future], future.result()
