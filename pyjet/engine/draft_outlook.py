"""How fast steps like the last ones are with each number of drafts of the MTP block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyjet.engine.draft_costs import RESTS
from pyjet.engine.draft_policy import Chances, Company, DraftPolicy, StepPrices
from pyjet.engine.price_book import Float64Array

N_STEPS = 10  # whose mean counts: a sample of the newest ones


class BestCuts(NamedTuple):
    """Tokens per second of steps that verify what is best for each; whether those are all drafts, of every step."""

    rate: float
    take_all: bool


class DraftOutlook:
    """Means over the newest steps, at the prices of now. ``most``: drafts of the MTP block.

    What makes it worth to have more drafts than are verified on average is that the block knows which ones are good,
    so the chances of each step count, not their means.
    """

    def __init__(self, policy: DraftPolicy, most: int) -> None:
        self._policy = policy
        self._most = most
        self._n_seen = 0
        self._chances = np.zeros((N_STEPS, 0, 0))  # of the newest steps, in no order: of sequences and their drafts
        self._is_mtp = np.zeros((N_STEPS, 0, 1), np.bool_)  # whose drafts a sequence has
        self.rates = [0.0] * (most + 1)  # tokens per second with none, one, two, ... drafts
        self.tokens = [0.0] * (most + 1)  # of a step that verifies all of them
        self._take_all = [False] * (most + 1)

    def forget(self) -> None:
        """Other sequences run now."""
        self._n_seen = 0

    def takes_all(self, n_draft: int) -> bool:
        """Whether every one of the newest steps is best with all of so many drafts, however sure each of them is."""
        return self._n_seen >= N_STEPS and self._take_all[n_draft]

    def add(self, chances: Chances, others: Chances, company: Company, room: int) -> None:
        """A step in which ``chances`` are those of the MTP block's drafts and ``others`` of better ones.

        ``room``: drafts of all sequences at most.
        """
        self._keep(chances, others)
        self._n_seen += 1
        n_kept = min(self._n_seen, N_STEPS)
        kept, is_mtp = self._chances[:n_kept], self._is_mtp[:n_kept]
        prices = self._policy.step_prices(company, room)
        positions = np.arange(kept.shape[2])
        width = kept.shape[2] if others else 0
        for n_draft in range(self._most + 1):
            drafts = (kept * ((positions < n_draft) | ~is_mtp))[:, :, : max(n_draft, width)]
            cuts = best_cuts(drafts, prices, self._policy.pass_seconds(n_draft or RESTS))
            self.rates[n_draft], self._take_all[n_draft] = cuts
            self.tokens[n_draft] = company.n_rows + float(drafts.sum()) / n_kept

    def _keep(self, chances: Chances, others: Chances) -> None:
        """In the place of the oldest step, 0.0 where a sequence has no draft."""
        of_all = [*chances, *others]
        _, n_sequences, width = self._chances.shape
        if n_sequences != len(of_all):
            self._chances = np.zeros((N_STEPS, len(of_all), width))
            self._is_mtp = np.zeros((N_STEPS, len(of_all), 1), np.bool_)
        if (more := max(map(len, of_all)) - width) > 0:
            self._chances = np.pad(self._chances, ((0, 0), (0, 0), (0, more)))
        at = self._n_seen % N_STEPS
        self._is_mtp[at] = np.arange(len(of_all))[:, None] < len(chances)
        self._chances[at] = 0.0
        for row, each in zip(self._chances[at], of_all):
            row[: len(each)] = each


def best_cuts(chances: Float64Array, prices: StepPrices, passes: float) -> BestCuts:
    """Of steps that each verify the drafts that are best for it, as ``DraftPolicy.cut`` chooses them.

    ``chances``: float64[steps, sequences, drafts]; ``passes``: seconds of the MTP block's part.
    """
    n_all = (chances > 0.0).sum(axis=(1, 2))
    chances = chances[:, :, : len(prices.of_widest) - 1]  # there is room for no more
    n_steps, n_sequences, most = chances.shape
    flat = chances.reshape(n_steps, n_sequences * most)
    order = (-flat).argsort(axis=1, kind="stable")
    # By drafts of a sequence at most, step and drafts looked at so far, the most likely ones first.
    is_taken = order % max(1, most) < np.arange(most + 1)[:, None, None]
    shape = most + 1, n_steps, flat.shape[1] + 1
    tokens, n_drafts = np.full(shape, float(n_sequences)), np.zeros(shape, np.int64)
    tokens[:, :, 1:] += (np.take_along_axis(flat, order, axis=1) * is_taken).cumsum(axis=2)
    is_taken.cumsum(axis=2, out=n_drafts[:, :, 1:])
    of_rows = np.full(shape[2], np.inf)  # where there is no room
    n_known = min(shape[2], len(prices.of_rows))
    of_rows[:n_known] = prices.of_rows[:n_known]
    seconds = of_rows[n_drafts] + (np.array(prices.of_widest[: most + 1]) + passes)[:, None, None]
    best = (tokens / seconds).transpose(1, 0, 2).reshape(n_steps, -1).argmax(axis=1)
    most_taken, n_looked_at = np.divmod(best, shape[2])
    chosen = most_taken, np.arange(n_steps), n_looked_at
    rate = float(tokens[chosen].sum() / seconds[chosen].sum())
    return BestCuts(rate, bool((n_drafts[chosen] >= n_all).all()))
