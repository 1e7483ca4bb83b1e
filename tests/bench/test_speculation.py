"""Figures of bench.speculation: ratios, shares of the adaptive policy, skipped prompts, tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench import bounds
from bench.adaptive_share import Lengths, Steps, adaptive_settings, cell, fixed_settings, rates_of, requests, run
from bench.draft_overhead import blocks_above, verify_batch
from bench.prompt_skipper import KEPT_ROWS, PromptSkipper, kept_rows, spread
from bench.report_speculation import speculation_table
from bench.served_drafts import LLAMA_CPP, figures, ratios
from bench.step_rows import Rows, make_batch
from pyjet.engine.settings import MAX_TAIL
from pyjet.native import SEQ_RESET, StepResult
from tests.engine.fake_native import LIMITS, FakeNative

# skipping rows of prompts


def test_the_last_rows_of_each_sequence_are_kept() -> None:
    kept = kept_rows(np.array([20, 1, KEPT_ROWS, 9], np.int32))
    assert kept.tolist() == [*range(12, 20), 20, *range(21, 29), *range(30, 38)]
    assert spread(np.array([5, 6], np.int32), np.array([1, 3]), 5).tolist() == [-1, 5, -1, 6, -1]


class Recorder:
    """An engine that remembers what it was asked and answers with row numbers."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.copies: list[tuple[int, ...]] = []

    def step(self, batch: Any, meanwhile: Any = None) -> Any:
        if meanwhile is not None:
            meanwhile()
        self.batches.append(batch)
        n = len(batch.tokens)
        none = np.empty((0, 0), np.float32)
        return StepResult(none, none, np.arange(n, dtype=np.int32), np.full(n, -1, np.int32), 100.0)

    def state_reset(self, slot: int) -> None:
        self.copies.append((slot,))

    def state_copy(self, source: int, target: int) -> None:
        self.copies.append((source, target))


def test_a_long_prompt_is_shortened_and_begins_from_the_base() -> None:
    engine = Recorder()
    batch = make_batch([Rows(0, 1, 70, 0), Rows(1, 50, 0, 2), Rows(2, 3, 0, 3)], 1000)
    batch = replace(batch, row_next=np.arange(54, dtype=np.int32))
    result = PromptSkipper(engine, 9, 1e-3).step(batch)  # type: ignore[arg-type]
    [sent] = engine.batches
    assert sent.seqs["n_rows"].tolist() == [1, 8, 3] and sent.seqs["row_begin"].tolist() == [0, 1, 9]
    assert sent.positions.tolist() == [70, *range(42, 50), 0, 1, 2]
    assert sent.row_next.tolist() == [0, *range(43, 51), 51, 52, 53]
    assert sent.seqs["flags"].tolist() == [0, 0, SEQ_RESET], "short prompts are read as they are"
    assert engine.copies == [(1,), (9, 1)]
    assert result.argmax.tolist() == [0, *[-1] * 42, *range(1, 12)]
    assert result.step_us == pytest.approx(100 + 42 * 1000)
    assert batch.seqs["flags"].tolist() == [0, SEQ_RESET, SEQ_RESET], "the caller's batch stays"


def test_steps_without_long_parts_pass_unchanged() -> None:
    engine = Recorder()
    batch = make_batch([Rows(0, KEPT_ROWS, 70, 0)], 1000)
    PromptSkipper(engine, 9, 1e-3).step(batch)  # type: ignore[arg-type]
    assert engine.batches == [batch] and not engine.copies


# the adaptive policy beside fixed numbers


def test_speed_counts_what_the_rates_promise() -> None:
    steps = Steps([0.5] * 8, [[2, 0]] * 8)
    assert steps.tokens_per_second([0.8, 0.6]) == pytest.approx((1 + 0.8 + 0.6 + 1) / 0.5)
    assert steps.mean_drafts == 1.0
    slow = Steps([0.5] * 7 + [50.0], [[0]] * 8)
    assert slow.tokens_per_second([]) == pytest.approx(2.0), "one hiccup does not count"


def test_a_cell_compares_with_the_best_fixed_number() -> None:
    fixed = {0: Steps([1.0] * 4, [[0]] * 4), 2: Steps([1.5] * 4, [[2]] * 4)}
    found = cell(fixed, Steps([1.2] * 4, [[1]] * 4), (0.8, 0.6))
    assert (found["best"], found["fixed_tok_s"]) == (2, {"0": 1.0, "2": 1.6})
    assert found["share"] == pytest.approx(1.8 / 1.2 / 1.6, abs=1e-4)
    assert cell(fixed, Steps([1.0] * 4, [[0]] * 4), (0.2, 0.1))["best"] == 0


def test_settings_of_the_runs() -> None:
    rates = rates_of(0.85)
    assert len(rates) == MAX_TAIL and list(rates) == sorted(rates, reverse=True)
    assert not fixed_settings(0, rates).is_on
    three = fixed_settings(3, rates)
    assert (three.synth_rates, three.is_adaptive) == (rates[:3], False)
    assert adaptive_settings(rates).is_adaptive and adaptive_settings(rates).synth_rates == rates


def test_runs_measure_decoding_steps_only() -> None:
    limits = replace(LIMITS, n_ctx_slot=40, n_ctx_total=96)
    wanted = list(requests(2, 12, limits.n_vocab))
    assert len({request.prompt for request in wanted}) == 2
    steps = run(FakeNative(limits), limits, wanted, Lengths(2, 5))  # type: ignore[arg-type]
    assert steps.verified == [[0, 0]] * 5 and len(steps.seconds) == 5


# steps with drafts


class Sizes:
    n_vocab = 50_000


def test_the_steps_compared_have_the_same_rows() -> None:
    plain, drafting = (verify_batch(Sizes(), 4, 200, 32_768, drafts=drafts) for drafts in (False, True))  # type: ignore[arg-type]
    assert (plain.tokens == drafting.tokens).all() and (plain.seqs["n_spec"] == drafting.seqs["n_spec"]).all()
    assert plain.row_next is None and not plain.seqs["n_draft"].any()
    assert drafting.seqs["n_draft"].tolist() == drafting.seqs["n_verify"].tolist() == [2] * 4
    assert drafting.row_next is not None
    rows = drafting.row_next.reshape(4, 3)
    assert (rows[:, 2] == -1).all() and (rows[:, :2] == drafting.tokens.reshape(4, 3)[:, 1:]).all()


def test_blocks_of_the_draft_head() -> None:
    assert blocks_above(32_768, 248_320).tolist() == [*range(512, 576)]
    assert blocks_above(32_768, 32_768 + 130).tolist() == [512, 513]
    assert blocks_above(32_768, 8_000).size == blocks_above(0, 248_320).size == 0


# servers

SERVED = {"1": [{"total_tok_s": 300.0, "tokens_per_step": 2.4}, {"total_tok_s": 310.0, "tokens_per_step": 2.3}]}


def test_ratios_take_the_peers_own_figures_first() -> None:
    ours = figures(SERVED)
    assert ours == {"tok_s_1": 305.0, "tokens_per_step_1": 2.35}
    found = ratios(ours, {}, "NVIDIA H200")
    assert found == {"tok_s_ratio_1": round(305 / LLAMA_CPP["1"], 3), "llama_cpp_measured_here": []}
    found = ratios(ours, {"llama_cpp_tok_s_1": 100.0}, "a laptop")
    assert found == {"tok_s_ratio_1": 3.05, "llama_cpp_measured_here": ["1"]}
    assert ratios(ours, {}, "a laptop") == {"llama_cpp_measured_here": []}, "recorded on another device"


def test_the_table_and_its_bounds() -> None:
    record = {"device": "H200", "commit": "abc", "date": "2026-01-01", "model": "27B", "options": "--spec-type x",
              **figures(SERVED), **ratios(figures(SERVED), {}, "an H200"), "draft_overhead_fraction": 0.2,
              "adaptive_worst_share": 0.95, "adaptive_left_out": ["1 at 100000", "4 at 100000"]}  # fmt: skip
    text = speculation_table(record)
    assert f"| 1 agent | 2.35 | 305 | {LLAMA_CPP['1']:.0f} | {305 / LLAMA_CPP['1']:.1f} | >= 3 | MISSED |" in text
    assert "| 8 agents |  |  |  |  | >= 6 | not measured |" in text
    assert "recorded earlier" in text and "0.2 (<= 0.06, MISSED)" in text
    assert "0.95 (>= 0.98, MISSED). Of these not measured: 1 at 100000, 4 at 100000. 27B" in text
    assert {b.key for b in bounds.BOUNDS} >= {f"tok_s_ratio_{case}" for case in LLAMA_CPP}
