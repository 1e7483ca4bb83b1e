"""Adaptive drafts on the card they are made for: never much slower than the best fixed number, and faster with luck.

Step times are measured ones, prices of the MTP block estimates; see h200_steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pyjet.engine.draft_costs import RESTS
from pyjet.engine.speculation_settings import MAX_DRAFT_ROWS, SpeculationSettings
from tests.engine.h200_drafts import BAD, GOOD, Card, Luck, agent
from tests.engine.h200_steps import draft_seconds, step_seconds

ADAPTIVE = SpeculationSettings(mtp=True, n_max=7)
FIXED = (0, 1, 2, 3, 4, 6)
N_STEPS = 600


def fixed_rate(n_agents: int, depth: float, luck: Luck, n_drafts: int, *, stairs: bool) -> float:
    """Tokens per second that are expected with so many drafts in each step, as far as there is room for them."""
    n = min(n_drafts, MAX_DRAFT_ROWS // n_agents - 1)
    tokens = n_agents * (1.0 + float(np.cumprod(luck.rates[:n]).sum()))
    seconds = step_seconds(n_agents * (1 + n), depth, stairs=stairs)
    return tokens / (seconds + draft_seconds(n if n else RESTS))


@pytest.mark.parametrize("stairs", [True, False])
@pytest.mark.parametrize("luck", [GOOD, BAD], ids=["good", "bad"])
@pytest.mark.parametrize("depth", [200, 23_000, 100_000])
@pytest.mark.parametrize("n_agents", [1, 4, 8])
def test_as_fast_as_the_best_fixed_number(n_agents: int, depth: int, luck: Luck, stairs: bool) -> None:
    card = Card(ADAPTIVE, stairs=stairs)
    agents = [agent(i, depth, luck) for i in range(n_agents)]
    card.run(agents, 100 * n_agents)
    # What the agents' luck really was, as 600 steps of one agent are few.
    begins = [len(each.sequence.generated) for each in agents]
    measured = card.run_steps(agents, N_STEPS)
    ends = [len(each.sequence.generated) for each in agents]
    right = np.concatenate([each.is_right[b:e] for each, b, e in zip(agents, begins, ends)])
    had = replace(luck, rates=tuple(right.mean(axis=0)))
    mean_depth = depth + np.mean(begins + ends)
    best = max(fixed_rate(n_agents, mean_depth, had, n, stairs=stairs) for n in FIXED)
    none = fixed_rate(n_agents, mean_depth, had, 0, stairs=stairs)
    assert measured > 0.98 * best
    assert luck is BAD or measured > 1.5 * none


@pytest.mark.parametrize("n_agents", [1, 4, 8])
def test_copying_pays(n_agents: int) -> None:
    """Text of which most stood in the prompt, 150 tokens at a time, beside a poor MTP block."""
    speeds = {}
    for name, drafts in {
        "none": SpeculationSettings(),
        "mtp": ADAPTIVE,
        "lookup": SpeculationSettings(lookup=True),
        "both": replace(ADAPTIVE, lookup=True),
    }.items():
        card = Card(drafts)
        agents = [agent(i, 23_000, BAD, n_copied=150) for i in range(n_agents)]
        card.run(agents, 300 * n_agents)
        speeds[name] = card.run(agents, 700 * n_agents)
    assert speeds["lookup"] > 1.3 * speeds["none"]
    assert speeds["both"] > 1.3 * max(speeds["none"], speeds["mtp"])
    assert speeds["both"] > 0.94 * speeds["lookup"]


def test_luck_that_changes_is_noticed() -> None:
    """From text that the MTP block cannot guess to text that it can, and back."""
    card = Card(ADAPTIVE)
    bad, good = agent(0, 60_000, replace(BAD, rates=(0.05,) * 7)), agent(0, 60_000, GOOD)
    good.is_right[:1000], good.probabilities[:1000] = bad.is_right[:1000], bad.probabilities[:1000]
    good.is_right[3000:], good.probabilities[3000:] = bad.is_right[3000:], bad.probabilities[3000:]
    card.run([good], 700)
    slow = card.run([good], 300)
    assert slow > 0.98 / step_seconds(1, 61_000, stairs=True)
    card.run([good], 300)
    assert card.run([good], 1600) > 2.0 * slow
    card.run([good], 300)
    assert card.run([good], 1000) > 0.97 / step_seconds(1, 64_000, stairs=True)


def test_nothing_is_lost_when_no_draft_is_ever_right() -> None:
    for n_agents in (1, 8):
        card = Card(replace(ADAPTIVE, lookup=True))
        agents = [agent(i, 20_000, Luck((0.001,) * 7)) for i in range(n_agents)]
        card.run(agents, 200 * n_agents)
        none = n_agents / step_seconds(n_agents, 21_000, stairs=True)
        assert card.run(agents, 800 * n_agents) > 0.98 * none
