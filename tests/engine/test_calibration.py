"""Dummy steps at load: valid for the ABI, few, and soon over on a slow device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pytest import approx

from pyjet.assets import default_model_path
from pyjet.engine.calibration import DRAFT_ROWS, MOST_SECONDS, ROWS, calibrate, calibrate_drafts
from pyjet.engine.client import EngineLimits
from pyjet.engine.local import LocalEngine
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.engine.step_budget import MAX_PAUSE
from pyjet.native.step import StepBatch, StepResult
from tests.engine.core_run import Run, expected, request
from tests.engine.fake_native import LIMITS, FakeNative
from tests.engine.h200_steps import DRAFTS, H200
from tests.engine.h200_steps import LIMITS as H200_LIMITS


class Slow:
    """Every row takes ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spent = 0.0

    def step(self, batch: StepBatch) -> StepResult:
        seconds = self.seconds * len(batch.tokens)
        self.spent += seconds
        empty = np.empty((0, 1), np.float32)
        return StepResult(empty, empty, np.empty(0, np.int32), np.empty(0, np.int32), seconds * 1e6)


def test_steps_keep_the_rules_and_harm_nobody_who_comes_later() -> None:
    run = Run()
    assert {n for n, _ in calibrate(run.native, run.limits)} == {1, 2, 4, 8}
    run.submit(request())
    run.drain()
    assert run.tokens("a") == expected(request())[0]


def drafting(**speculation: object) -> EngineLimits:
    return replace(LIMITS, max_spec=7, max_rows=64, n_ctx_slot=60, speculation=SpeculationSettings(**speculation))


@pytest.mark.parametrize("limits", [drafting(mtp=True), drafting(mtp=True, n_max=1), drafting(lookup=True)])
def test_steps_with_drafts_keep_the_rules_too(limits: EngineLimits) -> None:
    native = FakeNative(limits)
    assert len(calibrate_drafts(native, limits)) == (3 if limits.speculation.mtp else 0)
    assert {n for n, _ in calibrate(native, limits)} == {n for n in (*ROWS, *DRAFT_ROWS) if n <= 60}


def test_drafts_have_prices_of_their_own() -> None:
    limits = replace(H200_LIMITS, max_spec=7, speculation=SpeculationSettings(mtp=True, n_max=7))
    prices = calibrate_drafts(H200(), limits)
    assert [price * 1e3 for price in prices] == approx(DRAFTS)
    with_kv = dict(calibrate(H200(), limits, prices[0]))
    without = dict(calibrate(H200(), H200_LIMITS))
    assert {n: with_kv[n] for n in without if n in with_kv} == approx(without), "steps cost what they cost without"
    assert calibrate_drafts(H200(), replace(limits, n_ctx_slot=3)) == (), "no room to draft"


def test_a_small_context_limits_the_rows() -> None:
    limits = replace(LIMITS, n_ctx_slot=5, max_rows=64)
    assert {n for n, _ in calibrate(FakeNative(limits), limits)} == {1, 2, 4}


def test_every_size_that_decoding_can_wait_for_is_measured_within_the_time() -> None:
    measured = calibrate(H200(), replace(H200_LIMITS, max_rows=1024))
    rows = [n for n, _ in measured]
    assert sorted(set(rows)) == [n for n in ROWS if n <= 512]
    assert sum(seconds for _, seconds in measured) <= MOST_SECONDS
    assert all(rows.count(n) == 3 for n in rows if n <= 128)


def test_a_slow_device_is_measured_once() -> None:
    slow = Slow(2.0)
    assert calibrate(slow, H200_LIMITS) == ((1, 2.0),)
    assert slow.spent == 2.0


def test_time_is_bounded() -> None:
    for seconds in (0.0005, 0.003, 0.02, 0.14):
        slow = Slow(seconds)
        calibrate(slow, H200_LIMITS)
        assert slow.spent <= MOST_SECONDS + 2 * MAX_PAUSE


def test_the_real_engine_is_calibrated_when_it_is_loaded() -> None:
    settings = EngineSettings(str(default_model_path()), n_slots=1, n_ctx_slot=64, n_ctx_total=64, n_threads=2)
    with LocalEngine.load(replace(settings, step_budget=2.0)) as engine:
        assert engine.limits.step_budget == 2.0
        assert all(n <= 64 and seconds > 0 for n, seconds in engine.limits.step_seconds)
        assert engine.limits.step_seconds[0][0] == 1
