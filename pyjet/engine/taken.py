"""Tokens that a sequence got in a step, until its clients are told of them."""

from __future__ import annotations

from dataclasses import dataclass

from pyjet.engine.chosen import Chosen
from pyjet.engine.request import Event, Memory, TokenEvent, TokenProbs
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation import Lesson


@dataclass(slots=True)
class TakenTokens:
    """The sequence had ``n_before`` tokens when it got these."""

    sequence: Sequence
    n_before: int
    tokens: list[int]
    probs: list[TokenProbs | None] | None = None  # of each; None: nobody wants any
    memories: list[Memory] | None = None  # the sampler's, behind each; of tokens of the device: None
    lesson: Lesson | None = None

    def add(self, chosen: Chosen) -> None:
        """One more."""
        assert self.probs is not None and self.memories is not None
        self.tokens.append(chosen.token)
        self.probs.append(chosen.probs)
        self.memories.append(())

    def remember(self) -> None:
        """The last one was accepted."""
        assert self.memories is not None
        self.memories[-1] = self.sequence.sampler.memory

    def events(self) -> list[Event]:
        """One for each token."""
        sequence, count = self.sequence, len(self.tokens)
        probs, memories = self.probs or [None] * count, self.memories or [()] * count
        request_id = sequence.request.id
        return [
            TokenEvent(request_id, token, of_token, sequence.timings(n), memory)
            for n, (token, of_token, memory) in enumerate(zip(self.tokens, probs, memories), self.n_before + 1)
        ]
