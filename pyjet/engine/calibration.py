"""Measures once, before the first request, what steps of some sizes take on this device with this model.

With drafts of the MTP block, also what these add to a step.
"""

from __future__ import annotations

from statistics import median
from typing import Protocol

from pyjet.engine.calibration_steps import prompt_step, verifying_step
from pyjet.engine.client import EngineLimits
from pyjet.engine.draft_costs import RESTS
from pyjet.engine.speculation_settings import MAX_DRAFT_ROWS
from pyjet.engine.step_budget import MAX_PAUSE
from pyjet.native.step import StepBatch, StepResult

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
DRAFT_ROWS = (3, 6, 12, 20, 28)  # with drafts these matter too
REPEAT_BELOW = 0.03  # seconds: shorter steps are measured N_REPEAT times
N_REPEAT = 3
MOST_SECONDS = 0.8  # for ROWS, and for drafts; only a single slow step can take longer
PRICED_ROWS = 4  # of the steps by which drafts are priced
N_ROUNDS = 7  # of one step for each number of drafts, in turns: the device's clock may change meanwhile


class Computes(Protocol):
    def step(self, batch: StepBatch) -> StepResult: ...


def calibrate(stepper: Computes, limits: EngineLimits, kv_seconds: float = 0.0) -> tuple[tuple[int, float], ...]:
    """(rows, seconds) of measured steps, several of the same size in a row. Nothing may run yet.

    Sizes that take longer than a pause may, nobody asks for beside decoding rows. With speculation small steps are
    those of drafts, the MTP block's KV of their rows included but for what it costs in any step, ``kv_seconds``.
    """
    most_rows = min(limits.max_rows, limits.n_ctx_slot, limits.n_ctx_total)
    measured: list[tuple[int, float]] = []
    spent = seconds = timed(stepper, prompt_step(1, limits))  # it may load kernels: not counted
    for n_rows in sorted({*ROWS, *(DRAFT_ROWS if limits.speculation.is_on else ())}):
        # The next size takes longer than this one: it starts only when there is time for it.
        if n_rows > most_rows or seconds > MAX_PAUSE or spent + seconds > MOST_SECONDS:
            break
        for _ in range(N_REPEAT if seconds < REPEAT_BELOW else 1):
            seconds = timed(stepper, step_of(n_rows, limits))
            spent += seconds if n_rows in ROWS else 0.0  # drafts do not take the time of large sizes
            of_kv = kv_seconds if n_rows <= MAX_DRAFT_ROWS else 0.0
            measured.append((n_rows, max(seconds - of_kv, 0.5 * seconds)))
    return tuple(measured) or ((1, seconds),)


def step_of(n_rows: int, limits: EngineLimits) -> StepBatch:
    """A step of that size as it is likely to be."""
    speculation = limits.speculation
    if speculation.is_on and n_rows <= MAX_DRAFT_ROWS:
        return verifying_step(n_rows, 0 if speculation.max_draft else RESTS, limits)
    return prompt_step(n_rows, limits)


def calibrate_drafts(stepper: Computes, limits: EngineLimits) -> tuple[float, ...]:
    """Seconds that the MTP block adds to a step: KV alone, the first draft, each further one. () without it."""
    most = min(limits.speculation.max_draft, 3)
    n_rows = min(PRICED_ROWS, limits.max_rows, min(limits.n_ctx_slot, limits.n_ctx_total) - most - 1)
    if not most or n_rows < 1:
        return ()
    kinds = sorted({RESTS, 0, 1, most})
    rounds = []
    for _ in range(N_ROUNDS):
        rounds.append([timed(stepper, verifying_step(n_rows, n, limits)) for n in kinds])
        if sum(map(sum, rounds)) > MOST_SECONDS:
            break
    rests, none, first, *more = (median(each) for each in zip(*rounds))
    further = (more[0] - first) / (most - 1) if more else first - none
    return max(0.0, none - rests), max(0.0, first - none), max(0.0, further)


def timed(stepper: Computes, batch: StepBatch) -> float:
    """Seconds of one step."""
    return stepper.step(batch).step_us * 1e-6
