"""Prices of decoding steps: between what was measured, and from one kind of company to another."""

from __future__ import annotations

from pytest import approx

from pyjet.engine.decode_prices import DecodePrices, context_class
from pyjet.engine.price_book import BELOW_BASE, NOISE, UNKNOWN, PriceBook, not_falling
from pyjet.engine.step_costs import StepCosts

MEASURED = StepCosts([(n, 0.01) for n in (1, 2, 4, 8)] + [(n, 0.02) for n in (12, 16, 20, 24, 28, 32)])
BASE = DecodePrices(MEASURED, 32).seconds()


def test_prices_are_what_was_measured_before_until_steps_tell() -> None:
    prices = PriceBook(BASE).prices()
    assert prices[1] == prices[8] == 0.01 and prices[9] == prices[32] == 0.02


def test_what_steps_take_longer_is_on_a_line_between_two_sizes() -> None:
    book = PriceBook(BASE)
    book.add(8, 0.012, 1)
    book.add(16, 0.026, 2)
    prices = book.prices()
    assert prices[[4, 8, 12, 16]] == approx([0.01 + 0.001, 0.012, 0.02 + 0.004, 0.026])
    assert prices[32] == approx(0.02 + 2 * 0.006), "beyond the largest one in proportion to the rows"


def test_fewer_rows_never_take_longer() -> None:
    book = PriceBook(BASE)
    book.add(12, 0.031, 1)
    for step in range(3):
        book.add(16, 0.027, step)
    prices = book.prices()
    assert (prices[1:] >= prices[:-1]).all()
    assert prices[12] == approx((0.031 + 3 * 0.027) / 4), "what contradicts itself is noise"
    assert not_falling([(1.0, 1), (3.0, 1), (2.0, 1), (0.0, 2), (5.0, 1)]) == approx([1.0, 1.25, 1.25, 1.25, 5.0])


def test_hiccups_do_not_count() -> None:
    book = PriceBook(BASE)
    for step in range(9):
        book.add(8, 0.5 if step % 3 == 0 else 0.012, step)
    assert book.prices()[8] == approx(0.012)


def test_doubt_shrinks_with_measurements_and_grows_with_time() -> None:
    book = PriceBook(BASE)
    assert book.least(16, 0.03, 0) == approx(0.03 * (1 - UNKNOWN))
    assert book.least(16, 0.02, 0) == approx(0.02 * (1 - BELOW_BASE))
    book.add(8, 0.0295, 0)
    assert book.least(16, 0.03, 0) == approx(0.0295), "no less than fewer rows"
    book.add(16, 0.03, 1)
    once = book.least(16, 0.03, 1)
    assert once == approx(0.03 * (1 - NOISE))
    for _ in range(8):
        book.add(16, 0.03, 1)
    assert once < book.least(16, 0.03, 1) < 0.03
    assert book.least(16, 0.03, 2000) < once, "contexts have grown since, or the device is warm"


def test_companies_have_prices_of_their_own() -> None:
    prices = DecodePrices(MEASURED, 32)
    short, long = context_class(200), context_class(100_000)
    prices.enter(4, short)
    prices.observe(4, short, 8, 0.011)
    prices.enter(4, long)
    assert prices.seconds()[8] == approx(0.01 + 2 * 0.001), "begins with those of others, as contexts are longer"
    for _ in range(3):
        prices.observe(4, long, 8, 0.017)
    assert prices.seconds()[8] == approx(0.017)
    prices.enter(4, short)
    assert prices.seconds()[8] == approx(0.011)


def test_classes_are_of_like_contexts() -> None:
    assert context_class(23_000) == context_class(23_500)
    assert context_class(0) == context_class(200) < context_class(4000) < context_class(23_000)


def test_books_that_nobody_uses_are_forgotten() -> None:
    prices = DecodePrices(MEASURED, 32)
    for n_sequences in range(1, 200):
        prices.enter(n_sequences, 0)
        prices.observe(n_sequences, 0, 8, 0.011)
    assert len(prices._books) <= 65
