"""Figures of bench.agents_beside, and what it leaves out when time is short."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from bench.agents_beside import Clock
from bench.agents_figures import figures, prompt_rate
from bench.agents_time import expected_seconds

ARGS = Namespace(agents=4, context=23000, followup=200, prefill=20000, mixed_lead=1.0)


def followup(*ttft: float) -> dict[str, Any]:
    return {"scenario": "followup", "ttft_s": list(ttft), "processed": [200] * len(ttft)}


def mixed(before: float, during: float, pause: float, other: float) -> dict[str, Any]:
    return {"scenario": "mixed", "before_tok_s": before, "during_tok_s": during, "longest_pause_s": pause,
            "other_ttft_s": other}  # fmt: skip


PREFILL = {"scenario": "prefill", "ttft_s": [8.0], "prompt_tok_s": 2500.0}


def test_figures() -> None:
    found = figures([PREFILL, {"scenario": "build", "ttft_s": [9.0]}, followup(0.1, 0.3), followup(0.2, 0.1),
                     mixed(100, 40, 0.05, 10.0), mixed(100, 20, 0.2, 8.0)])  # fmt: skip
    assert found["followup_ttft_s_4x23k"] == pytest.approx(0.25)
    assert found["decode_share_during_prefill"] == pytest.approx(0.3)
    assert found["longest_pause_s"] == 0.2
    assert found["prompt_slowdown"] == pytest.approx(9 / 8)


def test_what_did_not_run_has_no_figure() -> None:
    assert figures([]) == {}
    assert set(figures([PREFILL])) == {"prompt_ttft_s_alone"}
    assert "prompt_slowdown" not in figures([mixed(100, 40, 0.05, 10.0)])
    assert prompt_rate([]) is None
    assert prompt_rate([PREFILL]) == 2500.0


def test_conversations_that_must_be_built_take_their_time() -> None:
    build = ARGS.agents * ARGS.context / 2500
    for scenario in ("followup", "mixed"):
        seconds = [expected_seconds(scenario, 2500.0, built, ARGS) for built in (False, True)]
        assert build < seconds[0] - seconds[1] < 1.2 * build
    assert expected_seconds("prefill", 2500.0, False, ARGS) > 8


def test_what_would_not_end_in_time_is_left_out() -> None:
    clock = Clock(10)
    assert clock.allows("followup", 5) and clock.left_out == []
    assert not clock.allows("mixed", 50)
    assert clock.left_out == ["mixed: would take 50 s of 10 s left"]
