"""How many drafts pay: more of them make a step longer and, with luck, worth more tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyjet.engine.decode_prices import DecodePrices
from pyjet.engine.draft_costs import DraftCosts
from pyjet.engine.step_costs import StepCosts

BETTER = 1.002  # times as fast, before more rows are taken
NEW_STEPS = 8  # in some company, each of which comes to count at once
REFRESH_STEPS = 8  # after so many others do: prices change slowly
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


class StepPrices(NamedTuple):
    """A step with n drafts, w of the sequence that has most of them, takes ``of_rows[n] + of_widest[w]`` seconds.

    Both have one entry for each number of drafts that there is room for, and one for none.
    """

    of_rows: list[float]
    of_widest: list[float]


class DraftPolicy:
    """Prices of steps with prompts come from ``costs``, of others from ``prices``, of the MTP block from ``passes``.

    All of them are learned as steps run. ``costs`` holds what was measured before. A pass looks at the contexts once,
    the model ``attention_blocks`` times; 0: nobody knows how often.
    """

    def __init__(
        self, costs: StepCosts, passes: DraftCosts, max_rows: int = MAX_ROWS, attention_blocks: int = 0
    ) -> None:
        self.prices = DecodePrices(costs, max_rows)
        self._max_rows = max_rows
        self._costs = costs
        self._passes = passes
        self._attention_blocks = attention_blocks
        self._look = 0.0  # seconds in which a pass looks at the contexts
        self._priced_for: tuple[Company, int] | None = None  # company and room of these prices
        self._step_prices = StepPrices([], [])

    def observe(self, company: Company, n_rows: int, widest: int, seconds: float) -> None:
        """A step in such company that only decoded took so long, without the MTP block's part."""
        n_rows, widest = min(n_rows, self._max_rows), min(widest, self._max_rows)
        self.prices.observe(company.n_rows, company.context, n_rows, widest, seconds)
        if self.prices.book.n_steps <= NEW_STEPS or self.prices.step % REFRESH_STEPS == 0:
            self.refresh()

    def refresh(self) -> None:
        """What steps took comes to count."""
        self.prices.refresh()
        self._priced_for = None

    def cut(self, chances: Chances, company: Company, room: int, n_draft: int) -> Cut:
        """Drafts to verify, ``room`` at most, in a step that makes ``n_draft`` for the next one.

        The j-th draft of a sequence is worth a token if all before it are right too. Whatever the longest sequence may
        have, the most likely drafts of all come first, and as many of them as give most tokens per second: with stairs
        in the price, that may be more than where the next one would not pay.
        """
        best_first = sorted([(chance, j, i) for i, each in enumerate(chances) for j, chance in enumerate(each)])
        best_first.reverse()
        of_rows, of_widest = self.step_prices(company, room)
        passes = self.pass_seconds(n_draft)
        best, n_best, longest = len(chances) / (of_rows[0] + of_widest[0] + passes), 0, 0
        for most in range(1, min(room, max(map(len, chances))) + 1):
            beyond = of_widest[most] + passes
            tokens, n = float(len(chances)), 0
            for chance, j, _ in best_first:
                if j >= most:
                    continue
                if n == room:
                    break
                n += 1
                tokens += chance
                rate = tokens / (of_rows[n] + beyond)
                if rate > best * BETTER:
                    best, n_best, longest = rate, n, most
        lengths = [0] * len(chances)
        for i in [i for _, j, i in best_first if j < longest][:n_best]:
            lengths[i] += 1
        return Cut(lengths, best)

    def pass_seconds(self, n_draft: int) -> float:
        """Of the MTP block's part in a step that makes so many drafts."""
        return self._passes.seconds(n_draft) + self.look_seconds(n_draft)

    def look_seconds(self, n_draft: int) -> float:
        """Of that, what looking at the contexts takes."""
        return max(0, n_draft) * self._look

    def step_prices(self, company: Company, room: int) -> StepPrices:
        """Of steps with ``room`` for drafts, without the MTP block's part."""
        if (company, room) != self._priced_for:
            self._priced_for = company, room
            self._step_prices = self._look_up(company, room)
        return self._step_prices

    def _look_up(self, company: Company, room: int) -> StepPrices:
        """Prompts take the rows that drafts leave them: beside prompts a draft costs as much as each of their rows."""
        n_all = company.n_rows + company.n_prompt_rows
        if company.n_prompt_rows:
            seconds = max(self._costs.seconds(n_all), SHORTEST)
            return StepPrices([seconds * (1.0 + n / n_all) for n in range(room + 1)], [0.0] * (room + 1))
        self.prices.enter(company.n_rows, company.context)
        n_drafts = np.arange(room + 1)
        of_rows = np.maximum(self.prices.of_rows()[np.minimum(n_all + n_drafts, self._max_rows)], SHORTEST)
        of_widest = self.prices.of_widest()[np.minimum(1 + n_drafts, self._max_rows)]
        if self._attention_blocks:
            self._look = max(0.0, float(of_widest[0])) / self._attention_blocks
        return StepPrices(of_rows.tolist(), np.maximum(of_widest, SHORTEST - of_rows[0]).tolist())
