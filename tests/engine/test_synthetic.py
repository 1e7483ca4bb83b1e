"""Lots: the rates that were asked for, and the same answer for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from pyjet.engine.request import SamplingParams
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.engine.synthetic import Lots
from tests.engine.core_run import Run, request

RATES = (0.8, 0.6, 0.15)


def test_each_position_has_its_rate() -> None:
    lots = Lots(RATES, seed=5)
    n_right = np.array([lots.n_right(index, 3) for index in range(20_000)])
    for position, rate in enumerate(RATES):
        # Five standard deviations.
        assert abs((n_right > position).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / 20_000)


def test_neighbouring_tokens_have_nothing_to_do_with_each_other() -> None:
    right = np.array([Lots((0.5,), seed).n_right(index, 1) for seed in range(40) for index in range(500)])
    assert abs(np.corrcoef(right[:-1], right[1:])[0, 1]) < 5 / np.sqrt(len(right))


@pytest.mark.parametrize(("rates", "n_right"), [((1.0, 1.0), 2), ((0.0, 0.0), 0), ((1.0, 0.0), 1)])
def test_certain_lots(rates: tuple[float, ...], n_right: int) -> None:
    assert {Lots(rates, 1).n_right(index, 2) for index in range(50)} == {n_right}
    assert Lots(rates, 1).n_right(0, 7) == n_right, "where there is no rate, none is right"
    assert Lots(rates, 1).n_right(0, 0) == 0


def played(drafts: SpeculationSettings, **fields: object) -> Run:
    run = Run(speculation=drafts, max_spec=7, max_rows=64, n_ctx_slot=400, n_ctx_total=1200)
    run.submit(request("a", sampling=SamplingParams(temperature=0.0, seed=9), max_tokens=300, **fields))
    run.drain()
    return run


@pytest.mark.parametrize("source", [{"mtp": True}, {"lookup": True}])
def test_lots_replace_what_the_model_thinks(source: dict) -> None:
    run = played(SpeculationSettings(**source, n_max=3, synth_rates=RATES))
    counters = run.core.counters()
    assert set(run.native.steps[1:-2]) == {4}, "as many drafts as there are rates, each time"
    shares = np.array(counters.accepted_per_position) / counters.drafts
    assert np.abs(shares - RATES).max() < 0.15
    assert run.tokens("a") == played(SpeculationSettings(**source, n_max=3, synth_rates=RATES)).tokens("a")
    assert len(run.tokens("a")) == run.last("a").timings.predicted_n == 300


def test_a_draft_may_end_the_answer() -> None:
    drafts = SpeculationSettings(mtp=True, n_max=2, synth_rates=(1.0, 1.0))
    tokens = played(drafts).tokens("a")
    stop = tokens[5]
    run = played(drafts, stop_ids=frozenset({stop}))
    assert run.last("a").reason == "eos"
    assert run.tokens("a") == tokens[: tokens.index(stop) + 1]


def test_lengths_may_follow_the_rates() -> None:
    """With steps that take longer for each row, drafts that are never right do not pay. The block's opinion is moot."""
    lengths = {}
    for name, rates in {"good": (1.0, 1.0, 1.0), "bad": (0.05, 0.0, 0.0)}.items():
        drafts = SpeculationSettings(mtp=True, n_max=3, synth_rates=rates, synth_adaptive=True)
        run = Run(
            speculation=drafts, max_spec=7, max_rows=64, n_ctx_slot=400, n_ctx_total=1200,
            step_seconds=((1, 0.01), (2, 0.012), (4, 0.016), (8, 0.024)), draft_seconds=(0.0, 0.001, 0.001),
        )  # fmt: skip
        run.native.step_us = lambda rows: 1e4 + 2e3 * rows
        run.native.mtp.share_right, run.native.mtp.certainty = 0.0, 0.0
        run.submit(request("a", max_tokens=300))
        run.drain()
        lengths[name] = np.mean(run.native.steps[-50:])
    assert lengths["good"] > 3.0 and lengths["bad"] < 1.3
