"""Measures once, before the first request, what steps of some sizes take on this device with this model.

With drafts of the MTP block, also what these add to a step.
"""

from __future__ import annotations

from statistics import median
from typing import Protocol

import numpy as np

from pyjet.engine.client import EngineLimits
from pyjet.engine.draft_costs import RESTS
from pyjet.engine.step_budget import MAX_PAUSE
from pyjet.native.step import NO_DRAFTS, ROW_ARGMAX, SEQ_DTYPE, SEQ_RESET, StepBatch, StepResult

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
REPEAT_BELOW = 0.03  # seconds: shorter steps are measured N_REPEAT times
N_REPEAT = 3
MOST_SECONDS = 0.8  # for all of it; only a single slow step can take longer
DRAFT_ROWS = 4  # of the steps by which drafts are priced
N_ROUNDS = 7  # of one step for each number of drafts, in turns: the device's clock may change meanwhile


class Computes(Protocol):
    def step(self, batch: StepBatch) -> StepResult: ...


def calibrate(stepper: Computes, limits: EngineLimits) -> tuple[tuple[int, float], ...]:
    """(rows, seconds) of measured steps, several of the same size in a row. Nothing may run yet.

    The rows are a prompt in slot 0 and the first pages. Whoever comes next resets the slot and writes its pages before
    it reads them. Sizes that take longer than a pause may, nobody asks for beside decoding rows.
    """
    most_rows = min(limits.max_rows, limits.n_ctx_slot, limits.n_ctx_total)
    measured: list[tuple[int, float]] = []
    spent = seconds = timed_step(stepper, limits, 1)  # it may load kernels: not counted
    for n_rows in ROWS:
        # The next size takes longer than this one: it starts only when there is time for it.
        if n_rows > most_rows or seconds > MAX_PAUSE or spent + seconds > MOST_SECONDS:
            break
        for _ in range(N_REPEAT if seconds < REPEAT_BELOW else 1):
            seconds = timed_step(stepper, limits, n_rows)
            spent += seconds
            measured.append((n_rows, seconds))
    return tuple(measured) or ((1, seconds),)


def calibrate_drafts(stepper: Computes, limits: EngineLimits) -> tuple[float, ...]:
    """Seconds that the MTP block adds to a step: KV alone, the first draft, each further one. () without it."""
    most = min(limits.speculation.max_draft, 3)
    n_rows = min(DRAFT_ROWS, limits.max_rows, min(limits.n_ctx_slot, limits.n_ctx_total) - most)
    if not most or n_rows < 1:
        return ()
    kinds = sorted({RESTS, 0, 1, most})
    rounds = []
    for _ in range(N_ROUNDS):
        rounds.append([stepper.step(draft_batch(n_rows, n, limits)).step_us * 1e-6 for n in kinds])
        if sum(map(sum, rounds)) > MOST_SECONDS:
            break
    rests, none, first, *more = (median(each) for each in zip(*rounds))
    further = (more[0] - first) / (most - 1) if more else first - none
    return max(0.0, none - rests), max(0.0, first - none), max(0.0, further)


def timed_step(stepper: Computes, limits: EngineLimits, n_rows: int) -> float:
    """Seconds of one step of ``n_rows``."""
    return stepper.step(prompt_batch(n_rows, limits)).step_us * 1e-6


def prompt_batch(n_rows: int, limits: EngineLimits) -> StepBatch:
    """The first rows of a prompt of arbitrary tokens, and a token is wanted from the last one, as of a decoding row."""
    return draft_batch(n_rows, RESTS, limits)


def draft_batch(n_rows: int, n_draft: int, limits: EngineLimits) -> StepBatch:
    """The same with so many drafts behind it; RESTS: without the MTP block."""
    rows = np.arange(n_rows, dtype=np.int32)
    tokens = rows * 7919 % limits.n_vocab
    n_pages = -(-(n_rows + max(0, n_draft)) // limits.page_tokens)
    flags = np.zeros(n_rows, np.uint32)
    flags[-1] = ROW_ARGMAX
    drafts = NO_DRAFTS if n_draft == RESTS else (0, n_draft, -1, 0)
    return StepBatch(
        tokens,
        rows,
        np.zeros(n_rows, np.int32),
        flags,
        np.array([(0, 0, n_rows, 0, 0, 0, n_pages, SEQ_RESET, *drafts)], SEQ_DTYPE),
        np.arange(n_pages, dtype=np.int32),
        row_next=None if n_draft == RESTS else np.append(tokens[1:], np.int32(-1)),
    )
