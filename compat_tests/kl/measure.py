"""Run both engines on every window, in several processes of one thread each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cli.llama_cpp import LlamaModel, Tokens
from compat_tests.kl.divergence import Sample, compare, log_softmax
from compat_tests.kl.oracle import MODE_PAIRS, MODES, llama_logits
from compat_tests.kl.pyjet_logits import MAIN_PATH, ROW_PATHS, pyjet_logits, same_bits
from pyjet.model.reader import Model, load_model
from pyjet.native.config import KvType


@dataclass(frozen=True)
class Job:
    """One window of one file with one KV type. all_paths: compute pyjet's logits in every row path."""

    path: Path
    weights: str
    kv_type: KvType
    window: int
    tokens: Tokens
    all_paths: bool


@dataclass(frozen=True)
class JobResult:
    own: dict[tuple[str, str], Sample]  # pair of llama.cpp's modes -> what they differ by
    ours: dict[str, Sample]  # llama.cpp's mode -> pyjet against it
    paths_equal: bool  # pyjet's row paths that ran gave the same bits


@lru_cache(maxsize=1)
def _open(path: Path) -> tuple[Model, LlamaModel]:
    """The file in both engines; the one before it is closed when nothing refers to it."""
    return load_model(path), LlamaModel(path)


def run_job(job: Job) -> JobResult:
    """Evaluate one window with llama.cpp's modes and with pyjet, and compare them."""
    model, llama = _open(job.path)
    paths = pyjet_logits(model, job.tokens, job.kv_type, ROW_PATHS if job.all_paths else [MAIN_PATH])
    ours = log_softmax(paths[MAIN_PATH])
    theirs = {mode: log_softmax(llama_logits(llama, job.tokens, mode, job.kv_type)) for mode in MODES}
    return JobResult(
        own={(a, b): compare(theirs[a], theirs[b]) for a, b in MODE_PAIRS},
        ours={mode: compare(theirs[mode], ours) for mode in MODES},
        paths_equal=same_bits(paths),
    )


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
