"""The table of a trace that was made up, with clocks that drift."""

from __future__ import annotations

import numpy as np

from bench.op_trace import ACT_WAIT, BEGIN, CTAS, DONE, END, EVENTS, INPUT, OPS, UNITS, WEIGHT_WAIT, table

CYCLES = 1800.0  # a microsecond
NAMES = ["embed", *["residual", "gate_up", "swiglu", "down"] * 30, "logits"]
HOP, WORK = {"residual": 1.5, "swiglu": 1.5}, {"residual": 0.5, "gate_up": 20.0, "swiglu": 2.0, "down": 10.0}


def made_up(n_blocks: int) -> np.ndarray:
    """Blocks whose clocks begin anywhere and run up to 0.5% too fast or slow."""
    rng = np.random.default_rng(0)
    values = np.zeros((CTAS, OPS, EVENTS), np.int64)
    begin, rate = rng.uniform(1e6, 1e9, n_blocks), rng.uniform(0.995, 1.005, n_blocks)
    begin[0], rate[0] = 1e7, 1.0
    stage_end, end = 0.0, np.zeros(n_blocks)
    for i, name in enumerate(NAMES):
        start, given = end, stage_end + HOP.get(name, 2.0) + rng.uniform(0, 0.02, n_blocks)
        end = given + WORK.get(name, 0.1) + rng.uniform(0, 0.5, n_blocks)
        for event, time in ((BEGIN, start), (INPUT, given), (DONE, end), (END, end)):
            values[:n_blocks, i, event] = begin + time * CYCLES * rate
        if name in ("gate_up", "down"):
            values[:n_blocks, i, [UNITS, WEIGHT_WAIT, ACT_WAIT]] = 21, 3 * CYCLES, CYCLES
        stage_end = float(end.max())
    return values


def test_times_of_a_made_up_trace() -> None:
    lines = {line[0]: line for line in table(made_up(132), NAMES, CYCLES)}
    assert list(lines) == ["residual", "gate_up", "swiglu", "down"]
    for name, (_, calls, total, given, work, longest, units, weights, acts, _) in lines.items():
        hop = HOP.get(name, 2.0)
        assert calls == "30"
        assert abs(float(given) - hop) < 0.1
        assert abs(float(total) - (hop + WORK[name] + 0.5)) < 0.15
        assert abs(float(work) - (WORK[name] + 0.25)) < 0.1
        assert abs(float(longest) - (WORK[name] + 0.5)) < 0.1
        assert (units, weights, acts) == (("21.00", "3.00", "1.00") if name in ("gate_up", "down") else ("", "", ""))
