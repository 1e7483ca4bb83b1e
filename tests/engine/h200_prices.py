"""The benchmark of adaptive drafts on the H200 of h200_device.

``adaptive_share`` is that of bench.adaptive_share: its lengths of runs, its acceptance by lot, its accounting. The real
policy runs; only the device is made of what its kernels take, and noise.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import accumulate

import numpy as np

from bench.adaptive_share import FIXED, adaptive_settings, rates_of
from bench.speculation import ADAPTIVE
from pyjet.engine.draft_costs import RESTS
from pyjet.engine.speculation_settings import MAX_DRAFT_ROWS
from tests.engine.h200_device import Device, drafts_seconds, rows_seconds
from tests.engine.h200_drafts import GOOD, Agent, Card, agent

N_TEXT = 2000  # tokens that an agent can say, more than it does in the benchmark
NOISE = 0.03  # of a step's time
UNSURE = 0.1  # times the probabilities of a real model may be those of random weights


class PricedCard(Card):
    """So many agents at one depth, who are right by lot.

    ``sure``: times the probabilities of a real model are those of the MTP block, which mean nothing here.
    """

    def __init__(
        self, n_seqs: int, context: int, ratio: float, seed: int, *, n_text: int = N_TEXT, sure: float = UNSURE
    ) -> None:
        super().__init__(adaptive_settings(rates_of(ratio)), device=Device)
        self.gains = [0.0, *accumulate(rates_of(ratio))]
        self.rng = np.random.default_rng([seed, n_seqs, context, round(100 * ratio)])
        self.agents = [agent(i, context, GOOD, seed=seed, n_text=n_text) for i in range(n_seqs)]
        for i, each in enumerate(self.agents):
            each.probabilities = each.probabilities * np.float32(sure)
            each.sequence.sampler.seed = 100 * seed + i  # seed 0: the lots of the benchmark
        self.steps: list[tuple[list[int], float]] = []  # drafts of each agent, seconds without noise
        self.made: list[int] = []  # drafts of the MTP block in each step

    def price(self, rows: Items[int], n_draft: int, depth: float) -> float:
        seconds = rows_seconds(rows, depth) + drafts_seconds(rows, depth, n_draft)
        self.steps.append(([n - 1 for n in rows], seconds))
        self.made.append(n_draft)
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
        rows = [1 + n_verified] * n_seqs
        seconds = rows_seconds(rows, context) + drafts_seconds(rows, context, n or RESTS)
        speeds[n] = n_seqs * (1.0 + sum(rates_of(ratio)[:n_verified])) / seconds
    return speeds


def adaptive_share(n_seqs: int, context: int, ratio: float, seed: int, sure: float = UNSURE) -> tuple[float, float]:
    """Speed of the adaptive policy over the best fixed number's, and over that without drafts."""
    speeds = fixed_speeds(n_seqs, context, ratio)
    speed = PricedCard(n_seqs, context, ratio, seed, sure=sure).run_all()
    return speed / max(speeds.values()), speed / speeds[0]
