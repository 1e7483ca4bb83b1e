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
        self.book = PriceBook(self._base, 1)
        self._above = self.book.above()
        self.step = 0  # decoding steps so far

    def learn_base(self, measured: StepCosts) -> None:
        """Prices for all companies, where nothing was measured before the first request."""
        self._base[1:] = np.maximum.accumulate([measured.seconds(n) for n in range(1, len(self._base))])

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
        self.refresh()

    def observe(self, n_sequences: int, context: int, n_rows: int, widest: int, seconds: float) -> None:
        """A step of ``n_rows``, ``widest`` of one sequence, took so long."""
        self.step += 1
        kind = n_sequences, context
        book = self._books.get(kind)
        if book is None:
            book = self._books[kind] = self._new_book(kind)
        book.add(n_rows, widest, seconds, self.step)

    def refresh(self) -> None:
        """What was observed comes to count."""
        self._above = self.book.above()

    def of_rows(self) -> Float64Array:
        """float64[N + 1]: seconds of steps of 0, 1, ... N rows with nothing in the context. Not to be changed."""
        return self._base

    def of_widest(self) -> Float64Array:
        """float64[N + 1]: what this company adds when its longest sequence has 0, 1, ... N rows. Not to be changed."""
        return self._above

    def least(self, n_rows: int, widest: int) -> float:
        """What a step of ``n_rows``, ``widest`` of one sequence, takes at least, as far as is known."""
        return self.book.least(n_rows, widest, float(self._base[n_rows] + self._above[widest]), self.step)

    def _new_book(self, kind: Kind) -> PriceBook:
        book = PriceBook(self._base, kind[0])
        if self._books:
            nearest = min(self._books, key=lambda other: abs(other[0] - kind[0]) + WIDTH * abs(other[1] - kind[1]))
            is_near = nearest[0] == kind[0] and abs(nearest[1] - kind[1]) == 1  # contexts have grown by a class
            share = 1.0 if is_near else (SHORT + tokens_of(kind[1])) / (SHORT + tokens_of(nearest[1]))
            book.inherit(self._books[nearest], min(2.0, max(0.5, share)), is_near=is_near)
        return book
