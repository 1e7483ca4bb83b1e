"""Prices of steps: learned, robust against hiccups, careful about what was never measured."""

from __future__ import annotations

from pytest import approx

from pyjet.engine.step_costs import FRESH_STEPS, NEAR_STEPS, StepCosts


def observe(costs: StepCosts, times: int, *steps: tuple[int, float]) -> None:
    """These steps, (rows, seconds), so often one after the other."""
    for _ in range(times):
        for n_rows, seconds in steps:
            costs.observe(n_rows, seconds)


def test_nothing_measured_has_no_price() -> None:
    assert StepCosts().seconds(8) == StepCosts().decode_seconds(8) == 0.0


def test_a_size_stands_for_the_stair_below_it() -> None:
    costs = StepCosts([(32, 0.010), (64, 0.020)])
    assert costs.seconds(31) == costs.seconds(32) == 0.010
    assert costs.seconds(33) == costs.seconds(48) == costs.seconds(64) == 0.020


def test_beyond_the_largest_size_the_price_grows_in_proportion() -> None:
    costs = StepCosts([(1, 0.007), (64, 0.020)])
    assert costs.seconds(128) == 0.040
    assert costs.seconds(1_000_000) == 0.020 * 1_000_000 / 64


def test_between_distant_sizes_the_price_is_on_a_line() -> None:
    costs = StepCosts([(1, 0.006), (513, 0.006 + 0.128)])  # kept for 640 rows
    assert 0.006 < costs.seconds(8) < 0.009
    assert costs.seconds(8) < costs.seconds(64) < costs.seconds(500) < costs.seconds(640)


def test_hiccups_do_not_count() -> None:
    costs = StepCosts()
    for seconds in (0.020, 0.021, 3.0, 0.020, 3.0):
        costs.observe(64, seconds)
    assert costs.seconds(64) == 0.021


def test_a_lasting_change_counts_after_three_steps() -> None:
    costs = StepCosts([(64, 0.020)] * 5)
    for _ in range(3):
        costs.observe(64, 0.026)
    assert costs.seconds(64) == 0.026


def test_the_price_of_decoding_is_never_that_of_more_rows() -> None:
    costs = StepCosts([(2, 0.0066), (4, 0.0068)])
    assert costs.decode_seconds(3) == 0.0066
    assert costs.decode_seconds(4) == 0.0068
    assert costs.decode_seconds(1) == 0.0066, "nothing smaller is known"


def test_old_prices_change_as_their_neighbours_did() -> None:
    costs = StepCosts([(1, 0.006), (32, 0.010), (64, 0.020)])
    observe(costs, 10, (64, 0.040))  # deep in a prompt
    observe(costs, FRESH_STEPS, (32, 0.015))
    assert costs.seconds(64) == approx(0.020 * 1.5), "no longer what it cost once, nor what it cost at first"
    assert costs.seconds(1) == approx(0.006 * 1.5)
    assert costs.decode_seconds(1) == 0.006


def test_old_prices_remember_how_much_steeper_a_size_was() -> None:
    """Follow-ups at 23,000 tokens: 192 rows grow more with the context than the decoding rows before them."""
    costs = StepCosts([(12, 0.008), (64, 0.019), (192, 0.051)])
    observe(costs, NEAR_STEPS, (12, 0.010))
    observe(costs, 3, (192, 0.074))
    observe(costs, FRESH_STEPS, (12, 0.010))
    assert costs.seconds(192) == approx(0.074, rel=0.01)
    assert costs.seconds(64) == approx(0.019 * 1.25), "never measured beside others: as its neighbours"


def test_one_spoilt_step_does_not_keep_a_size_from_being_tried() -> None:
    costs = StepCosts([(12, 0.008), (64, 0.019), (192, 0.051)])
    costs.observe(12, 0.010)
    costs.observe(192, 0.5)
    observe(costs, FRESH_STEPS, (12, 0.010))
    assert costs.seconds(192) == approx(0.051 * 1.25)


def test_a_steep_size_costs_what_it_did_at_first_when_contexts_are_empty_again() -> None:
    costs = StepCosts([(12, 0.008), (192, 0.050)])
    observe(costs, 3, (12, 0.016), (192, 0.200))
    observe(costs, FRESH_STEPS, (12, 0.016))
    assert costs.seconds(192) == approx(0.200)
    costs.observe(12, 0.012)
    assert costs.seconds(192) == approx(0.125), "half of the growth"
    costs.observe(12, 0.008)
    assert costs.seconds(192) == approx(0.050)
    costs.observe(12, 0.004)
    assert costs.seconds(192) == approx(0.025), "a faster device"


def test_noise_beside_a_size_that_hardly_grew_says_nothing() -> None:
    costs = StepCosts([(12, 0.0100), (192, 0.050)])
    observe(costs, 5, (12, 0.0101), (192, 0.052))
    observe(costs, FRESH_STEPS, (12, 0.020))
    assert costs.seconds(192) == approx(0.100)
