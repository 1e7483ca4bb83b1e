"""Prices of steps that only decode, remembered for each kind of company: so many sequences, contexts so long."""

from __future__ import annotations

from math import log

import numpy as np

from pyjet.engine.price_book import Float64Array, PriceBook
from pyjet.engine.step_costs import StepCosts

SHORT = 2048  # tokens of all contexts together: as many more hardly make a step longer
WIDTH = 0.25  # of a class of contexts, as the logarithm of their tokens
MAX_BOOKS = 64  # the one that was not used for longest is forgotten first

Kind = tuple[int, int]  # sequences, class of contexts


def context_class(n_tokens: int) -> int:
    """Of contexts of so many tokens together."""
    return round(log((n_tokens + SHORT) / SHORT) / WIDTH)


def tokens_of(context: int) -> float:
    """Tokens in the middle of a class."""
    return SHORT * (np.exp(context * WIDTH) - 1.0)


class DecodePrices:
    """``measured``: prices from before the first request, of steps with nothing in the context. N: ``max_rows``.

    A kind of company that was never seen begins with the prices of the one most like it.
    """

    def __init__(self, measured: StepCosts, max_rows: int) -> None:
        self._base = np.zeros(max_rows + 1)
        self.learn_base(measured)
        self._books: dict[Kind, PriceBook] = {}
        self._kind: Kind | None = None
        self._prices: Float64Array = np.maximum.accumulate(self._base)
        self.book = PriceBook(self._base)
        self.step = 0  # decoding steps so far

    def learn_base(self, measured: StepCosts) -> None:
        """Prices for all companies, where nothing was measured before the first request."""
        self._base[1:] = [measured.seconds(n) for n in range(1, len(self._base))]

    def enter(self, n_sequences: int, context: int) -> None:
        """The next steps are of this kind."""
        kind = n_sequences, context
        if kind == self._kind:
            return
        self._kind = kind
        self.book = self._books.pop(kind) if kind in self._books else self._new_book(kind)
        self._books[kind] = self.book  # the newest one
        if len(self._books) > MAX_BOOKS:
            del self._books[next(iter(self._books))]
        self._prices = self.book.prices()

    def observe(self, n_sequences: int, context: int, n_rows: int, seconds: float) -> None:
        """A step took so long."""
        self.step += 1
        kind = n_sequences, context
        book = self._books.get(kind)
        if book is None:
            book = self._books[kind] = self._new_book(kind)
        book.add(n_rows, seconds, self.step)
        if book is self.book:
            self._prices = book.prices()

    def seconds(self) -> Float64Array:
        """float64[N + 1]: of steps of 0, 1, ... N rows in this company. Not to be changed."""
        return self._prices

    def least(self, n_rows: int) -> float:
        """What a step of so many rows takes at least, as far as is known."""
        return self.book.least(n_rows, float(self._prices[n_rows]), self.step)

    def _new_book(self, kind: Kind) -> PriceBook:
        book = PriceBook(self._base)
        if self._books:
            nearest = min(self._books, key=lambda other: abs(other[0] - kind[0]) + WIDTH * abs(other[1] - kind[1]))
            is_near = nearest[0] == kind[0] and abs(nearest[1] - kind[1]) == 1  # contexts have grown by a class
            share = 1.0 if is_near else (SHORT + tokens_of(kind[1])) / (SHORT + tokens_of(nearest[1]))
            book.inherit(self._books[nearest], min(2.0, max(0.5, share)), is_near=is_near)
        return book
