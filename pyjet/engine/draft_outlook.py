"""How fast steps like the last ones are with each number of drafts of the MTP block."""

from __future__ import annotations

import numpy as np

from pyjet.engine.draft_costs import RESTS
from pyjet.engine.draft_policy import Chances, Company, DraftPolicy
from pyjet.engine.price_book import Float64Array

N_STEPS = 10  # whose mean counts: a sample of the newest ones


class DraftOutlook:
    """Means over the newest steps, at the prices of now. ``most``: drafts of the MTP block.

    What makes it worth to have more drafts than are verified on average is that the block knows which ones are good,
    so the chances of each step count, not their means.
    """

    def __init__(self, policy: DraftPolicy, most: int) -> None:
        self._policy = policy
        self._most = most
        self._n_seen = 0
        self._mtp = self._others = np.zeros((N_STEPS, 0, 0))  # of the newest steps, in no order: chances
        self.rates = [0.0] * (most + 1)  # tokens per second with none, one, two, ... drafts
        self.tokens = [0.0] * (most + 1)  # of a step that verifies all of them

    def forget(self) -> None:
        """Other sequences run now."""
        self._n_seen = 0

    def add(self, chances: Chances, others: Chances, company: Company, room: int) -> None:
        """A step in which ``chances`` are those of the MTP block's drafts and ``others`` of better ones.

        ``room``: drafts of all sequences at most.
        """
        self._mtp = self._with(self._mtp, chances, company.n_rows, self._most)
        self._others = self._with(self._others, others, company.n_rows, max(map(len, others), default=0))
        self._n_seen += 1
        n_kept = min(self._n_seen, N_STEPS)
        mtp, more = self._mtp[:n_kept], self._others[:n_kept].reshape(n_kept, -1)
        prices = self._policy.seconds(company, min(room, self._mtp[0].size + more.shape[1]))
        for n_draft in range(self._most + 1):
            drafts = np.concatenate([mtp[:, :, :n_draft].reshape(n_kept, -1), more], axis=1)
            seconds = prices + self._policy.pass_seconds(n_draft or RESTS)
            self.rates[n_draft] = best_rate(drafts, company.n_rows, seconds)
            self.tokens[n_draft] = company.n_rows + float(drafts.sum()) / n_kept

    def _with(self, kept: Float64Array, chances: Chances, n_sequences: int, width: int) -> Float64Array:
        """``kept`` with another step in the place of the oldest one, 0.0 where a sequence has no draft."""
        width = max(width, kept.shape[2])
        if kept.shape[1:] != (n_sequences, width):
            wider = np.zeros((N_STEPS, n_sequences, width))
            if kept.shape[1] == n_sequences:
                wider[:, :, : kept.shape[2]] = kept
            kept = wider
        step = kept[self._n_seen % N_STEPS]
        step[:] = 0.0
        for row, each in zip(step, chances):
            row[: len(each)] = each
        return kept


def best_rate(drafts: Float64Array, n_sequences: int, seconds: Float64Array) -> float:
    """Tokens per second of steps that each verify as many drafts as are best for it, the most likely ones first.

    ``drafts``: float64[steps, D] chances; ``seconds``: float64[N + 1] of a step with 0, 1, ... N of them.
    """
    best_first = -np.sort(-drafts, axis=1)[:, : len(seconds) - 1]
    tokens = np.full((len(drafts), best_first.shape[1] + 1), float(n_sequences))
    tokens[:, 1:] += best_first.cumsum(axis=1)
    seconds = seconds[: tokens.shape[1]]
    n_best = (tokens / seconds).argmax(axis=1)
    return float(tokens[np.arange(len(tokens)), n_best].sum() / seconds[n_best].sum())
