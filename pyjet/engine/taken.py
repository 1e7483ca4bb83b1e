"""Tokens that a sequence got in a step, until its clients are told of them."""

from __future__ import annotations

from dataclasses import dataclass

from pyjet.engine.chosen import Chosen
from pyjet.engine.request import Event, TokenEvent, TokenProbs
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation import Lesson


@dataclass
class TakenTokens:
    """The sequence had ``n_before`` tokens when it got these."""

    sequence: Sequence
    n_before: int
    tokens: list[int]
    probs: list[TokenProbs | None] | None = None  # of each; None: nobody wants any
    lesson: Lesson | None = None

    def add(self, chosen: Chosen) -> None:
        """One more."""
        assert self.probs is not None
        self.tokens.append(chosen.token)
        self.probs.append(chosen.probs)

    def events(self) -> list[Event]:
        """One for each token."""
        sequence, probs = self.sequence, self.probs or [None] * len(self.tokens)
        request_id = sequence.request.id
        return [
            TokenEvent(request_id, token, of_token, sequence.timings(n))
            for n, (token, of_token) in enumerate(zip(self.tokens, probs), self.n_before + 1)
        ]
