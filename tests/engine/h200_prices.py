"""What decoding steps take on an H200, from the figures of the benchmarks, and the benchmark of adaptive drafts on it.

``adaptive_share`` is that of bench.adaptive_share: its lengths of runs, its acceptance by lot, its accounting. The real
policy runs; only the device is made of measured numbers and noise.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from bench.adaptive_share import FIXED, RATIOS, adaptive_settings, rates_of
from bench.speculation import ADAPTIVE
from pyjet.engine.draft_costs import RESTS
from pyjet.engine.speculation_settings import MAX_DRAFT_ROWS
from tests.engine.h200_drafts import GOOD, Agent, Card, agent

RESULTS = Path(__file__).parents[2] / "bench" / "results" / "nvidia-h200"
N_TEXT = 2000  # tokens that an agent can say, more than it does in the benchmark
NOISE = 0.03  # of a step's time
SHORT, LONG, LONGEST = 200, 23_000, 100_000
UNSURE = np.float32(0.1)  # times the probabilities of a real model are those of random weights
MIDDLE_STAIR = 0.25  # of the way from 20 to 28 rows is done at 24: the tile of 24 rows ends there


@cache
def figures(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def draft_seconds(n_draft: int) -> float:
    """Of the MTP block's part in a step; RESTS: it has none."""
    speculation = figures("speculation")
    each = (speculation["ms_12_rows_with_drafts"] - speculation["ms_12_rows_verified"]) / 2
    return 0.0 if n_draft == RESTS else each * n_draft * 1e-3


def tokens_of(n_seqs: int, n_drafts: int, ratio: float) -> float:
    """Expected tokens of a step in which each sequence verifies so many drafts."""
    return n_seqs * (1.0 + sum(rates_of(ratio)[:n_drafts]))


@cache
def measured(n_seqs: int, context: int) -> dict[int, float]:
    """Seconds of steps by rows, without the MTP block's part, with all host work."""
    if context == LONGEST:  # what a context adds grows with it as it does for 12 rows
        ms = [figures("step")[f"ms_12_rows_at_{depth}"] for depth in (SHORT, LONG, LONGEST)]
        share = (ms[2] - ms[0]) / (ms[1] - ms[0])
        short, long = measured(n_seqs, SHORT), measured(n_seqs, LONG)
        seconds = {rows: short[rows] + share * (long[rows] - short[rows]) for rows in short}
        return {rows: min(each for more, each in seconds.items() if more >= rows) for rows in seconds}
    cell = figures("speculation")["adaptive"][f"{n_seqs} at {context}, high"]
    seconds = {}
    for text, speed in cell["fixed_tok_s"].items():
        n = int(text)
        if n_seqs * (1 + n) <= MAX_DRAFT_ROWS:
            total = tokens_of(n_seqs, n, RATIOS["high"]) / speed
            seconds[n_seqs * (1 + n)] = total - draft_seconds(n or RESTS)
    if n_seqs == 1:  # it chose the longest drafts
        seconds[8] = tokens_of(1, 7, RATIOS["high"]) / cell["adaptive_tok_s"] - draft_seconds(7)
    if n_seqs == 4:
        seconds[24] = seconds[20] + MIDDLE_STAIR * (seconds[28] - seconds[20])
        seconds[32] = seconds[28] + seconds[20] - seconds[16]
    return seconds


def row_seconds(n_seqs: int, context: int, n_rows: int) -> float:
    """Between measured row counts on a line, but for the stair behind 24 rows."""
    known = dict(sorted(measured(n_seqs, context).items()))
    if n_seqs == 4:
        known[25] = known[28] - (known[20] - known[16]) / 2
        known = dict(sorted(known.items()))
    return float(np.interp(n_rows, list(known), list(known.values())))


class PricedCard(Card):
    """So many agents at one depth, who are right by lot."""

    def __init__(self, n_seqs: int, context: int, ratio: float, seed: int, n_text: int = N_TEXT) -> None:
        super().__init__(adaptive_settings(rates_of(ratio)))
        self.context = context
        self.gains = [0.0, *accumulate(rates_of(ratio))]
        self.rng = np.random.default_rng([seed, n_seqs, context, round(100 * ratio)])
        self.agents = [agent(i, context, GOOD, seed=seed, n_text=n_text) for i in range(n_seqs)]
        for i, each in enumerate(self.agents):
            each.probabilities = each.probabilities * UNSURE
            each.sequence.sampler.seed = 100 * seed + i  # seed 0: the lots of the benchmark
        self.steps: list[tuple[list[int], float]] = []  # drafts of each agent, seconds without noise

    def price(self, n_rows: int, n_draft: int, depth: float) -> float:
        seconds = row_seconds(len(self.agents), self.context, n_rows) + draft_seconds(n_draft)
        self.steps.append(([len(each.sequence.verifying) for each in self.agents], seconds))
        return seconds * (1.0 + NOISE * float(np.clip(self.rng.normal(), -3.0, 3.0)))

    def verify(self, each: Agent) -> list[int]:
        sequence = each.sequence
        assert sequence.lots is not None
        n_before = len(sequence.generated)
        n_right = sequence.lots.n_right(n_before, len(sequence.verifying))
        return self.take(sequence, each.text[n_before : n_before + n_right + 1].tolist())

    def speed(self, steps: slice) -> float:
        """Expected tokens per second of these steps, as noise and lots would have it on average."""
        chosen = self.steps[steps]
        tokens = sum(1.0 + self.gains[n] for lengths, _ in chosen for n in lengths)
        return tokens / sum(seconds for _, seconds in chosen)

    def run_all(self) -> float:
        """Tokens per second of the steps that count."""
        for _ in range(ADAPTIVE.warm + ADAPTIVE.measured):
            self.step(self.agents)
        return self.speed(slice(ADAPTIVE.warm, None))


def fixed_speeds(n_seqs: int, context: int, ratio: float) -> dict[int, float]:
    """Tokens per second by fixed number of drafts."""
    speeds = {}
    for n in FIXED:
        n_verified = min(n, MAX_DRAFT_ROWS // n_seqs - 1)
        seconds = row_seconds(n_seqs, context, n_seqs * (1 + n_verified)) + draft_seconds(n or RESTS)
        speeds[n] = tokens_of(n_seqs, n_verified, ratio) / seconds
    return speeds


def adaptive_share(n_seqs: int, context: int, ratio: float, seed: int) -> tuple[float, float]:
    """Speed of the adaptive policy over the best fixed number's, and over that without drafts."""
    speeds = fixed_speeds(n_seqs, context, ratio)
    speed = PricedCard(n_seqs, context, ratio, seed).run_all()
    return speed / max(speeds.values()), speed / speeds[0]
