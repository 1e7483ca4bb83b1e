"""The promise on the card it was made for, with its measured step times and a clock that they drive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyjet.engine.calibration import calibrate
from pyjet.engine.step_budget import StepBudget
from pyjet.engine.step_costs import StepCosts
from tests.engine.h200_steps import H200, LIMITS, Shared, agent, share_card, step_seconds

PROMPT, DEPTH = 20_000, 23_000


def calibrated(max_rows: int = 512) -> StepBudget:
    limits = replace(LIMITS, max_rows=max_rows)
    return StepBudget(max_rows, limits.step_budget, StepCosts(calibrate(H200(), limits)))


def beside(n_decoding: int, max_rows: int, *, stairs: bool) -> tuple[Shared, Shared]:
    """A prompt alone, and beside agents that decode."""
    alone = share_card([agent(0, PROMPT)], calibrated(max_rows), stairs=stairs)
    agents = [agent(i, DEPTH, n_computed=DEPTH) for i in range(n_decoding)]
    return alone, share_card([*agents, agent(n_decoding, PROMPT)], calibrated(max_rows), stairs=stairs)


@pytest.mark.parametrize("stairs", [True, False])
@pytest.mark.parametrize("max_rows", [512, 1024])
@pytest.mark.parametrize("n_decoding", [1, 3])
def test_both_sides_keep_their_speed(n_decoding: int, max_rows: int, stairs: bool) -> None:
    alone, shared = beside(n_decoding, max_rows, stairs=stairs)
    undisturbed = step_seconds(n_decoding, DEPTH, stairs=stairs)
    assert len(shared.seconds) * undisturbed / shared.total > 0.31
    assert shared.least_share(0.5, undisturbed) > 0.29
    assert shared.total / alone.total < (1.2 if max_rows == 512 else 1.3)
    assert max(shared.seconds) < 0.04


def test_a_second_prompt_is_read_as_fast_as_the_first() -> None:
    budget = calibrated()
    agents = [agent(0, DEPTH, n_computed=DEPTH)]
    first = share_card([*agents, agent(1, PROMPT)], budget)
    second = share_card([*agents, agent(2, PROMPT)], budget)
    assert second.total < 1.1 * first.total


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    agents = [agent(0, DEPTH, n_computed=DEPTH), agent(1, PROMPT), agent(2, 200)]
    shared = share_card(agents, calibrated(), n_steps=12)
    assert agents[2].is_decoding and shared.total < 0.3


def test_an_urgent_prompt_is_read_first() -> None:
    agents = [agent(0, DEPTH, n_computed=DEPTH), agent(1, PROMPT), agent(2, 1000, priority=1)]
    shared = share_card(agents, calibrated(), n_steps=100)
    last = max(i for i, rows in enumerate(shared.rows) if rows.get(2, 0) > 1)
    assert sum(rows.get(2, 0) for rows in shared.rows[: last + 1]) == 1000
    assert not any(1 in rows for rows in shared.rows[:last])
