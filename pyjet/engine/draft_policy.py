"""How many drafts pay: more of them make a step longer and, with luck, worth more tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyjet.engine.decode_prices import DecodePrices
from pyjet.engine.draft_costs import DraftCosts
from pyjet.engine.price_book import Float64Array
from pyjet.engine.step_costs import StepCosts

BETTER = 1.002  # times as fast, before one more row is taken
SHORTEST = 1e-9  # seconds of a step, before anything was measured
MAX_ROWS = 64  # decoding rows with prices, unless an engine has more
Chances = Sequence[Sequence[float]]  # of each sequence: that its first draft is right, its first two are, ...


class Company(NamedTuple):
    """The rows of a step that are there anyway: ``n_rows`` that decode, and those of prompts.

    ``context``: class of the decoding sequences' contexts (decode_prices).
    """

    n_rows: int
    n_prompt_rows: int = 0
    context: int = 0


class Cut(NamedTuple):
    """Drafts of each sequence, and the tokens per second that are expected with them."""

    lengths: list[int]
    rate: float


class DraftPolicy:
    """Prices of steps with prompts come from ``costs``, of others from ``prices``, of the MTP block from ``passes``.

    All of them are learned as steps run. ``costs`` holds what was measured before.
    """

    def __init__(self, costs: StepCosts, passes: DraftCosts, max_rows: int = MAX_ROWS) -> None:
        self.prices = DecodePrices(costs, max_rows)
        self._max_rows = max_rows
        self._costs = costs
        self._passes = passes
        self._company: Company | None = None
        self._seconds: list[float] = []  # of steps in this company with no, one, two, ... drafts

    def observe(self, company: Company, n_rows: int, seconds: float) -> None:
        """A step in such company that only decoded took so long, without the MTP block's part."""
        self.prices.observe(company.n_rows, company.context, min(n_rows, self._max_rows), seconds)
        self._seconds = self._look_up(company, 0)
        self._company = company

    def cut(self, chances: Chances, company: Company, room: int, n_draft: int) -> Cut:
        """Drafts to verify, ``room`` at most, in a step that makes ``n_draft`` for the next one.

        The j-th draft of a sequence is worth a token if all before it are right too. The most likely ones of all
        sequences come first, and as many of them as give most tokens per second: with stairs in the price, that may
        be more than where the next one would not pay.
        """
        best_first = sorted([(chance, i) for i, each in enumerate(chances) for chance in each], reverse=True)[:room]
        prices = self._prices_for(company, len(best_first))
        passes = self._passes.seconds(n_draft)
        tokens = float(len(chances))
        best, n_best = tokens / (prices[0] + passes), 0
        for n, (chance, _) in enumerate(best_first, 1):
            tokens += chance
            rate = tokens / (prices[n] + passes)
            if rate > best * BETTER:
                best, n_best = rate, n
        lengths = [0] * len(chances)
        for _, i in best_first[:n_best]:
            lengths[i] += 1
        return Cut(lengths, best)

    def seconds(self, company: Company, most: int) -> Float64Array:
        """float64[most + 1]: seconds of steps with no, one, two, ... ``most`` drafts."""
        return np.array(self._prices_for(company, most)[: most + 1])

    def pass_seconds(self, n_draft: int) -> float:
        """Of the MTP block's part in a step that makes so many drafts."""
        return self._passes.seconds(n_draft)

    def _prices_for(self, company: Company, most: int) -> list[float]:
        """Seconds of steps with up to ``most`` drafts or more."""
        if company != self._company or len(self._seconds) <= most:
            self._company = company
            self._seconds = self._look_up(company, most)
        return self._seconds

    def _look_up(self, company: Company, most: int) -> list[float]:
        """Prompts take the rows that drafts leave them: beside prompts a draft costs as much as each of their rows."""
        n_all = company.n_rows + company.n_prompt_rows
        if company.n_prompt_rows:
            seconds = max(self._costs.seconds(n_all), SHORTEST)
            return [seconds * (1.0 + n / n_all) for n in range(most + 1)]
        self.prices.enter(company.n_rows, company.context)
        known: list[float] = np.maximum(self.prices.seconds()[n_all:], SHORTEST).tolist()
        return known + known[-1:] * (most + 1 - len(known))
