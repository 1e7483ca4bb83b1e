"""Python's part of a step when the device takes no time: ``python -m bench.host_path``.

Agents decode with drafts on a device that answers at once, so what is measured is what a GPU waits for between two
steps: `begin` plans a step and fills its arrays, `prepare` hands their addresses over, `take` takes the result.
`masks` and `settle` are done while a step computes. Microseconds a step, of which three in four take longer.

\b
  host_KIND_us_N[_greedy|_adaptive|_free|_grammar]
      KIND: begin, prepare, take, path (their sum), masks or settle; N agents. Two drafts each, or as many as pay of
      drafts that are more and less sure: other rows in each step. _free and _grammar: no drafts, without a grammar and
      with that of bench.constrained in the embedded model's vocabulary
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import click
import numpy as np

from bench import record
from bench.constrained import SCHEMA
from bench.step import numbers
from bench.step_log import NoMemory
from pyjet.assets import default_model_path
from pyjet.engine.build import build_constraints
from pyjet.engine.client import EngineLimits
from pyjet.engine.core import EngineCore
from pyjet.engine.request import GenerationRequest, SamplingParams
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation_settings import NO_SPECULATION, SpeculationSettings
from pyjet.grammar.description import Grammar
from pyjet.grammar.json_schema import json_rule
from pyjet.native.samples import mask_words
from pyjet.native.step import ROW_SAMPLE, OutputBuffers, StepBatch, StepResult
from pyjet.native.structs import MAX_DRAFT

N_VOCAB = 248_320
N_EMBEDDED = 7_424  # tokens of the embedded model
RATES = (0.8, 0.6)
PERCENT = 25  # of the steps are faster than the figure: other work on the machine hardly counts
N_LUCK = 512  # steps after which drafts are as right and as sure as before
WARM = 100  # steps before those that are measured
DRAFTS = SpeculationSettings(mtp=True, n_max=2, synth_rates=RATES)
SAMPLED, GREEDY = SamplingParams(seed=1), SamplingParams(temperature=0.0)
GRAMMAR = Grammar(f"start: {json_rule(SCHEMA)}")


@dataclass(frozen=True)
class Kind:
    """What the agents ask for."""

    sampling: SamplingParams
    drafts: SpeculationSettings
    grammar: Grammar | None = None
    n_vocab: int = N_VOCAB


KINDS = {
    "": Kind(SAMPLED, DRAFTS),
    "_greedy": Kind(GREEDY, DRAFTS),
    "_adaptive": Kind(SAMPLED, SpeculationSettings(mtp=True, n_max=7)),
    "_free": Kind(SAMPLED, NO_SPECULATION),
    "_grammar": Kind(SAMPLED, NO_SPECULATION, GRAMMAR, N_EMBEDDED),
}  # by suffix of the figures
STEP_SECONDS = tuple((n, 0.006 + 1e-4 * n) for n in (1, 2, 4, 8, 16, 24, 32, 64, 512))


class InstantStepper(NoMemory):
    """Computes nothing. A step's addresses are prepared as for the native one; `seconds` say what parts of it took."""

    def __init__(self, limits: EngineLimits) -> None:
        self._n_vocab = limits.n_vocab
        self._outputs = OutputBuffers(
            8, 8, limits.max_rows, limits.n_slots, 1, lambda rows, width: np.zeros((rows, width), np.float32)
        )
        self.seconds: dict[str, float] = {}
        rng = np.random.default_rng(1)
        self._sure = rng.beta(1.2, 0.6, (N_LUCK, limits.n_slots, MAX_DRAFT)).astype(np.float32)  # probabilities
        self._is_right = rng.random(self._sure.shape) < self._sure
        self._n_steps = 0

    def step(self, batch: StepBatch, meanwhile: Callable[[], None] | None = None) -> StepResult:
        begin = perf_counter()
        _ = batch.c_trunk
        _, result = self._outputs.prepare(batch)
        prepared = perf_counter()
        if batch.fill_masks is not None:
            batch.fill_masks()
        filled = perf_counter()
        if meanwhile is not None:
            meanwhile()
        self.seconds = {"prepare": prepared - begin, "masks": filled - prepared, "settle": perf_counter() - filled}
        result.argmax[:] = result.sampled[:] = 100
        if batch.fill_masks is not None:
            result.sampled[batch.row_flags & ROW_SAMPLE != 0] = first_allowed(batch, self._n_vocab)
        luck, n_drafting = self._n_steps % N_LUCK, len(result.drafts)
        result.drafts[:] = np.where(self._is_right[luck, :n_drafting], 100, 101)
        result.draft_probs[:] = self._sure[luck, :n_drafting]
        self._n_steps += 1
        result.step_us = 1e4 + 100 * len(batch.tokens)
        return result

    def close(self) -> None:
        pass


def first_allowed(batch: StepBatch, n_vocab: int) -> list[int]:
    """The lowest id that each sample's mask allows: a list of the schema then goes on for ever."""
    words = mask_words(n_vocab)
    masks = [batch.masks[begin : begin + words].view(np.uint8) for begin in batch.samples["mask_begin"]]
    return [int(np.unpackbits(mask, bitorder="little").argmax()) for mask in masks]


def measure(n_seqs: int, n_prompt: int, n_steps: int, kind: Kind) -> dict[str, float]:
    """Microseconds of each part, lower quartile."""
    context = n_prompt + 8 * (n_steps + WARM) + 64
    limits = EngineLimits(
        n_slots=n_seqs, n_ctx_slot=context, n_ctx_total=context * n_seqs, n_vocab=kind.n_vocab, max_rows=512,
        max_spec=7, step_seconds=STEP_SECONDS, draft_seconds=(0.0, 0.0002, 0.0002), speculation=kind.drafts,
    )  # fmt: skip
    stepper = InstantStepper(limits)
    constraints = build_constraints(EngineSettings(str(default_model_path())))
    core = EngineCore(limits, stepper, constraints=constraints)
    for i in range(n_seqs):
        prompt, grammar = tuple(range(i, i + n_prompt)), kind.grammar
        asked = GenerationRequest(f"r{i}", prompt, kind.sampling, cache_prompt=False, grammar=grammar)
        core.submit(asked, None if grammar is None else constraints.constraint(grammar))
    seconds: dict[str, list[float]] = defaultdict(list)
    while len(seconds["begin"]) < n_steps + WARM:
        begin = perf_counter()
        _, batch = core.begin()
        begun = perf_counter()
        assert batch is not None
        result = stepper.step(batch, lambda: core.settle().clear())
        taking = perf_counter()
        core.take(result)
        taken = perf_counter()
        parts = {"begin": begun - begin, "take": taken - taking, **stepper.seconds}
        parts["path"] = parts["begin"] + parts["prepare"] + parts["take"]
        if len(batch.seqs) == n_seqs and len(batch.tokens) <= 8 * n_seqs:
            for name, each in parts.items():
                seconds[name].append(each * 1e6)
    return {name: round(float(np.percentile(each[WARM:], PERCENT)), 1) for name, each in seconds.items()}


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.option("--sequences", default="1,4,8", show_default=True, callback=numbers)
@click.option("--prompt", default=4000, show_default=True, help="Tokens of each prompt.")
@click.option("--steps", default=1500, show_default=True)
def main(sequences: tuple[int, ...], prompt: int, steps: int) -> None:
    figures: dict[str, Any] = {}
    gc.collect()
    for suffix, kind in KINDS.items():
        for n_seqs in sequences:
            for name, us in measure(n_seqs, prompt, steps, kind).items():
                figures[f"host_{name}_us_{n_seqs}{suffix}"] = us
    record.show(figures)


if __name__ == "__main__":
    main()
