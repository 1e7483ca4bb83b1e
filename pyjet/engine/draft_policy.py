"""How many drafts pay: more of them make a step longer and, with luck, worth more tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyjet.engine.draft_costs import RESTS, DraftCosts
from pyjet.engine.step_costs import StepCosts

BETTER = 1.002  # times as fast, before one more row is taken
REFRESH_STEPS = 8  # prices are looked up anew so often: they change slowly
SHORTEST = 1e-9  # seconds of a step, before anything was measured
Chances = Sequence[Sequence[float]]  # of each sequence: that its first draft is right, its first two are, ...


class Company(NamedTuple):
    """The rows of a step that are there anyway: ``n_rows`` that decode, and those of prompts."""

    n_rows: int
    n_prompt_rows: int = 0


class Cut(NamedTuple):
    """Drafts of each sequence, and the tokens per second that are expected with them."""

    lengths: list[int]
    rate: float


class DraftPolicy:
    """Prices of rows come from ``costs``, those of the MTP block from ``passes``: both are learned as steps run."""

    def __init__(self, costs: StepCosts, passes: DraftCosts) -> None:
        self._costs = costs
        self._passes = passes
        self._prices: dict[Company, list[float]] = {}  # seconds with no, one, two, ... drafts
        self._n_steps = 0

    def begin_step(self) -> None:
        self._n_steps += 1
        if self._n_steps % REFRESH_STEPS == 0:
            self._prices.clear()

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

    def rates(self, chances: Chances, others: Chances, company: Company, room: int) -> list[float]:
        """Tokens per second with no, one, two, ... drafts of the MTP block, when steps like this one follow.

        ``chances`` are those of its drafts, all as many; ``others`` of sequences that have better ones.
        """
        most = len(chances[0])
        return [
            self.cut([*others, *(each[:n] for each in chances)], company, room, n or RESTS).rate
            for n in range(most + 1)
        ]

    def _prices_for(self, company: Company, most: int) -> list[float]:
        """Seconds of steps with up to ``most`` drafts or more.

        Prompts take the rows that drafts leave them, so beside prompts a draft costs as much as each of their rows.
        """
        prices = self._prices.setdefault(company, [])
        n_all = company.n_rows + company.n_prompt_rows
        for n in range(len(prices), most + 1):
            if company.n_prompt_rows:
                seconds = self._costs.seconds(n_all) * (1.0 + n / n_all)
            else:
                seconds = self._costs.seconds(n_all + n)
            prices.append(max(seconds, SHORTEST))
        return prices
