"""Conversations of random token ids that go on for some rounds, on an engine in this process."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyjet.engine.client import EngineClient, RequestStream
from pyjet.engine.request import FailedEvent, FinishedEvent, GenerationRequest, SamplingParams, Timings, TokenEvent

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, seed=11)
_numbers = itertools.count()


class EngineFailure(Exception):
    """A request was not answered."""


@dataclass(frozen=True)
class Sizes:
    """Tokens of the first prompt, of what each later round adds, and of each answer; rounds."""

    first: int
    more: int
    answer: int
    rounds: int

    @property
    def longest(self) -> int:
        """Tokens of a conversation at its end."""
        return self.first + (self.rounds - 1) * self.more + self.rounds * self.answer


@dataclass
class Talk:
    """One conversation: what is said in each round, and what came back."""

    turns: list[list[int]]
    sampling: SamplingParams
    n_answer: int
    history: list[int] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)
    timings: list[Timings] = field(default_factory=list)

    def ask(self, engine: EngineClient, *, reuse: bool = True) -> Asked:
        """Send the next round's request. `reuse`: the engine may take what it has computed before."""
        self.history += self.turns[len(self.answers)]
        request = GenerationRequest(f"talk-{next(_numbers)}", tuple(self.history), self.sampling,
                                    max_tokens=self.n_answer, cache_prompt=reuse)  # fmt: skip
        return Asked(self, engine.submit(request))

    def again(self) -> Talk:
        """The same conversation from its start."""
        return Talk(self.turns, self.sampling, self.n_answer)


@dataclass(frozen=True)
class Asked:
    """A request on its way."""

    talk: Talk
    stream: RequestStream

    def wait(self) -> None:
        """Read the answer. EngineFailure when there is none."""
        answer: list[int] = []
        for event in self.stream:
            if isinstance(event, TokenEvent):
                answer.append(event.token)
            elif isinstance(event, FailedEvent):
                raise EngineFailure(event.message)
            elif isinstance(event, FinishedEvent):
                self.talk.timings.append(event.timings)
        self.talk.answers.append(answer)
        self.talk.history += answer


def make_talks(n: int, sizes: Sizes, n_vocab: int, seed: int) -> list[Talk]:
    """Every other one sampled, all sampled ones with the same seed. No two begin alike."""
    rng = random.Random(seed)
    lengths = [sizes.first, *[sizes.more] * (sizes.rounds - 1)]
    talks = []
    for number in range(n):
        turns = [[rng.randrange(100, min(n_vocab, 7000)) for _ in range(length)] for length in lengths]
        turns[0][0] = 100 + number
        talks.append(Talk(turns, SAMPLED if number % 2 else GREEDY, sizes.answer))
    return talks


def play(engine: EngineClient, talks: Sequence[Talk], *, reuse: bool = True) -> None:
    """All conversations to their end, each round of all at once."""
    for _ in talks[0].turns:
        for asked in [talk.ask(engine, reuse=reuse) for talk in talks]:
            asked.wait()
