"""Prices of decoding steps: between what was measured, and from one kind of company to another."""

from __future__ import annotations

import numpy as np
from pytest import approx

from pyjet.engine.decode_prices import DecodePrices, context_class
from pyjet.engine.price_book import BELOW_BASE, NOISE, READ_ONCE, UNKNOWN, PriceBook, not_falling
from pyjet.engine.step_costs import StepCosts

MEASURED = StepCosts([(n, 0.01) for n in (1, 2, 4, 8)] + [(n, 0.02) for n in (12, 16, 20, 24, 28, 32)])
BASE = DecodePrices(MEASURED, 32).of_rows()


def test_nothing_is_added_to_what_was_measured_before_until_steps_tell() -> None:
    assert BASE[1] == BASE[8] == 0.01 and BASE[9] == BASE[32] == 0.02
    assert not PriceBook(BASE, 4).above().any()


def test_what_contexts_add_depends_on_the_longest_sequence() -> None:
    book = PriceBook(BASE, 4)
    book.add(8, 2, 0.012, 1)
    book.add(16, 4, 0.026, 2)
    above = book.above()
    assert above[[2, 3, 4]] == approx([0.002, 0.004, 0.006]), "on a line between two numbers of rows"
    assert above[8] == approx(0.006 + READ_ONCE * 0.006)
    assert above[1] == approx(0.002 - READ_ONCE * 0.001)
    book.add(13, 4, 0.0261, 3)
    assert book.above()[4] == approx(0.00605), "steps of other lengths tell about the same longest one"


def test_more_rows_of_all_sequences_never_take_less_time() -> None:
    book = PriceBook(BASE, 4)
    book.add(12, 3, 0.031, 1)
    for step in range(3):
        book.add(16, 4, 0.027, step)
    levels = (BASE[4 * np.arange(9)] + book.above()[:9])[1:]
    assert (levels[1:] >= levels[:-1]).all()
    assert levels[2] == approx((0.031 + 3 * 0.027) / 4), "what contradicts itself is noise"
    assert not_falling([(1.0, 1), (3.0, 1), (2.0, 1), (0.0, 2), (5.0, 1)]) == approx([1.0, 1.25, 1.25, 1.25, 5.0])


def test_hiccups_do_not_count() -> None:
    book = PriceBook(BASE, 1)
    for step in range(9):
        book.add(8, 8, 0.5 if step % 3 == 0 else 0.012, step)
    assert book.above()[8] == approx(0.002)


def test_doubt_shrinks_with_measurements_and_grows_with_time() -> None:
    book = PriceBook(BASE, 4)
    assert book.least(16, 4, 0.03, 0) == approx(0.03 * (1 - UNKNOWN))
    assert book.least(16, 4, 0.02, 0) == approx(0.02 * (1 - BELOW_BASE))
    book.add(8, 2, 0.0199, 0)
    assert book.least(16, 4, 0.03, 0) == approx(0.0299 * (1 - NOISE)), "no less than with shorter sequences"
    book.add(16, 4, 0.03, 1)
    once = book.least(16, 4, 0.03, 1)
    assert once == approx(0.03 * (1 - NOISE))
    for _ in range(8):
        book.add(16, 4, 0.03, 1)
    assert once < book.least(16, 4, 0.03, 1) < 0.03
    assert book.least(16, 4, 0.03, 2000) < once, "contexts have grown since, or the device is warm"


def test_companies_have_prices_of_their_own() -> None:
    prices = DecodePrices(MEASURED, 32)
    short, long = context_class(200), context_class(100_000)
    prices.enter(4, short)
    prices.observe(4, short, 8, 2, 0.011)
    prices.enter(4, long)
    assert prices.of_widest()[2] == approx(2 * 0.001), "begins with those of others, as contexts are longer"
    for _ in range(3):
        prices.observe(4, long, 8, 2, 0.017)
    prices.refresh()
    assert prices.of_widest()[2] == approx(0.007)
    prices.enter(4, short)
    assert prices.of_widest()[2] == approx(0.001)


def test_one_measurement_takes_the_place_of_what_was_guessed_from_others() -> None:
    other, book = PriceBook(BASE, 4), PriceBook(BASE, 8)
    for step in range(9):
        other.add(8, 2, 0.011, step)
    book.inherit(other, 3.0, is_near=False)
    assert book.above()[2] == approx(0.003) and not book.is_known(2)
    book.add(16, 2, 0.025, 9)
    assert book.above()[2] == approx(0.005) and book.is_known(2)


def test_more_rows_never_take_less_time_in_empty_contexts() -> None:
    noisy = StepCosts([(1, 0.0100), (2, 0.0098), (3, 0.0103), (4, 0.0101)])
    assert DecodePrices(noisy, 4).of_rows().tolist() == [0.0, 0.0100, 0.0100, 0.0103, 0.0103]


def test_classes_are_of_like_contexts() -> None:
    assert context_class(23_000) == context_class(23_500)
    assert context_class(0) == context_class(200) < context_class(4000) < context_class(23_000)


def test_books_that_nobody_uses_are_forgotten() -> None:
    prices = DecodePrices(MEASURED, 32)
    for n_sequences in range(1, 200):
        prices.enter(n_sequences, 0)
        prices.observe(n_sequences, 0, 8, 1, 0.011)
    assert len(prices._books) <= 65
