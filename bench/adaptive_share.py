"""Does the adaptive policy find the best number of drafts? Its speed over the best fixed number's, on this device.

For every context length, number of sequences and acceptance the engine's own scheduling runs with each fixed number of
drafts and adaptively. Acceptance is by lot (`synth_rates`), which the policy has to learn. Speed is the tokens that the
rates promise for the drafts a step verified, over the step's time with all host work; lots do not add noise to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, product
from statistics import median
from typing import Any

from bench.prompt_skipper import PromptSkipper
from pyjet.engine.client import EngineLimits
from pyjet.engine.core import EngineCore
from pyjet.engine.request import GenerationRequest, SamplingParams
from pyjet.engine.settings import MAX_TAIL
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.native import StepBatch

FIXED = (0, 1, 2, 3, 4, 6)
RATIOS = {"high": 0.85, "low": 0.3}  # acceptance of each position, given that of all before it
BLOCKS = 4  # of a run's measured steps; the median of their speeds counts
TURNS = 2  # runs of the adaptive policy and of the fixed number that was best
READ_ROWS = 1 << 16  # of a step that reads prompts; most of them are skipped
FOR_EVER = 1 << 20  # tokens of an answer


def rates_of(ratio: float) -> tuple[float, ...]:
    """Unconditional acceptance of the positions of the longest draft."""
    return tuple(ratio**position for position in range(1, MAX_TAIL + 1))


def fixed_settings(n_drafts: int, rates: Sequence[float]) -> SpeculationSettings:
    """Always so many drafts; none at all is what a server without speculation does."""
    if n_drafts == 0:
        return SpeculationSettings()
    return SpeculationSettings(mtp=True, n_max=n_drafts, synth_rates=tuple(rates[:n_drafts]))


def adaptive_settings(rates: Sequence[float]) -> SpeculationSettings:
    return SpeculationSettings(mtp=True, n_max=len(rates), synth_rates=tuple(rates), synth_adaptive=True)


@dataclass(frozen=True)
class Lengths:
    """Steps of a run before and while it is measured."""

    warm: int
    measured: int


@dataclass
class Steps:
    """The measured steps of one run, or of several of the same length one after the other."""

    seconds: list[float] = field(default_factory=list)
    verified: list[list[int]] = field(default_factory=list)  # drafts of each sequence
    n_runs: int = 0

    def tokens_per_second(self, rates: Sequence[float]) -> float:
        """Median over blocks of steps, so that one hiccup of the machine does not count."""
        gains = [0.0, *accumulate(rates)]
        tokens = [sum(1 + gains[n] for n in step) for step in self.verified]
        size = max(1, len(tokens) // (BLOCKS * max(1, self.n_runs)))
        starts = range(0, len(tokens) - size + 1, size)
        return median(sum(tokens[i : i + size]) / sum(self.seconds[i : i + size]) for i in starts)

    def __iadd__(self, others: Steps) -> Steps:
        self.seconds += others.seconds
        self.verified += others.verified
        self.n_runs += others.n_runs
        return self

    @property
    def mean_drafts(self) -> float:
        counts = [n for step in self.verified for n in step]
        return sum(counts) / max(1, len(counts))


def run(stepper: PromptSkipper, limits: EngineLimits, wanted: Sequence[GenerationRequest], lengths: Lengths) -> Steps:
    """Decode what follows prompts of equal length, with the speculation of the limits."""
    core = EngineCore(limits, stepper)
    for request in wanted:
        core.submit(request)
    n_seqs, context = len(wanted), len(wanted[0].prompt)
    found = Steps(n_runs=1)
    n_decoded = 0
    while n_decoded < lengths.warm + lengths.measured:
        begin = time.perf_counter()
        events, batch = core.begin()
        if batch is None:
            raise RuntimeError(f"nothing runs any more: {events}")
        drafts = drafts_of(batch, n_seqs, context)
        # As the engine does: what can wait is done while the device computes.
        core.take(stepper.step(batch, lambda: core.settle().clear()))
        if drafts is None:
            continue
        n_decoded += 1
        if n_decoded > lengths.warm:
            found.seconds.append(time.perf_counter() - begin)
            found.verified.append(drafts)
    return found


def requests(n_seqs: int, context: int, n_vocab: int) -> Iterable[GenerationRequest]:
    """Different prompts, greedy, without an end."""
    for i in range(n_seqs):
        prompt = tuple((j * 7919 + i * 104_729 + 100) % (n_vocab - 1) for j in range(context))
        yield GenerationRequest(
            f"r{i}", prompt, SamplingParams(temperature=0.0, seed=i), max_tokens=FOR_EVER, cache_prompt=False
        )


def drafts_of(batch: StepBatch, n_seqs: int, context: int) -> list[int] | None:
    """Drafts that each sequence verifies; None for a step in which not all of them decode."""
    seqs = batch.seqs
    if len(seqs) != n_seqs or (batch.positions[seqs["row_begin"]] < context).any():
        return None
    return [int(n) - 1 for n in seqs["n_rows"]]


def core_limits(limits: EngineLimits, speculation: SpeculationSettings) -> EngineLimits:
    """Limits of a core that keeps nothing, reads prompts in few steps and leaves the last state slot alone."""
    return replace(
        limits,
        n_extra_states=limits.n_extra_states - 1,
        max_rows=READ_ROWS,
        chunk_rows=READ_ROWS,
        step_budget=1e6,
        max_checkpoints=0,
        host_bytes=0,
        speculation=speculation,
    )


def measure(
    stepper: PromptSkipper, limits: EngineLimits, contexts: Sequence[int], counts: Sequence[int], fixed: Lengths,
    adaptive: Lengths, ends: float,
) -> dict[str, Any]:  # fmt: skip
    """Figures of every cell, and the smallest share over all. Nothing is begun after the time `ends`."""
    cells: dict[str, dict[str, Any]] = {}
    left_out: list[str] = []
    for context, n_seqs in product(contexts, counts):
        if time.monotonic() > ends:
            left_out.append(f"{n_seqs} at {context}")
            continue
        wanted = list(requests(n_seqs, context, limits.n_vocab))
        for name, ratio in RATIOS.items():
            # Rows that were right are computed again, in the next step's recurrence: all runs have the same lots.
            rates = rates_of(ratio)
            times = {n: run(stepper, core_limits(limits, fixed_settings(n, rates)), wanted, fixed) for n in FIXED}
            best = max(FIXED, key=lambda n: times[n].tokens_per_second(rates))
            chosen = Steps()
            # In turns: another minute of the machine may be some percent slower, and the best of six is so by luck too.
            for turn in range(TURNS):
                if turn:
                    again = run(stepper, core_limits(limits, fixed_settings(best, rates)), wanted, fixed)
                    times[best] += again
                chosen += run(stepper, core_limits(limits, adaptive_settings(rates)), wanted, adaptive)
            cells[f"{n_seqs} at {context}, {name}"] = cell(times, chosen, rates)
    shares = [each["share"] for each in cells.values()]
    found: dict[str, Any] = {"adaptive": cells, "adaptive_left_out": left_out}
    return {**found, "adaptive_worst_share": min(shares)} if shares else found


def cell(fixed: dict[int, Steps], adaptive: Steps, rates: Sequence[float]) -> dict[str, Any]:
    """Tokens a second of each fixed number of drafts and adaptively, and the share of the best."""
    speeds = {n: steps.tokens_per_second(rates) for n, steps in fixed.items()}
    own = adaptive.tokens_per_second(rates)
    best = max(speeds, key=lambda n: speeds[n])
    return {
        "fixed_tok_s": {str(n): round(speed, 1) for n, speed in speeds.items()},
        "best": best,
        "adaptive_tok_s": round(own, 1),
        "adaptive_drafts": round(adaptive.mean_drafts, 2),
        "share": round(own / speeds[best], 4),
    }
