"""Agents that decode with drafts on the H200 of h200_steps: real policy, made-up texts and luck, no wall clock."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

import numpy as np

from pyjet.engine.calibration import Computes, calibrate, calibrate_drafts
from pyjet.engine.draft_costs import RESTS
from pyjet.engine.request import GenerationRequest
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation import Speculation
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.native.step import StepResult
from pyjet.native.structs import MAX_DRAFT
from tests.engine.h200_device import BLOCKS_WITH_ATTENTION
from tests.engine.h200_steps import H200, LIMITS, draft_seconds, step_seconds

N_VOCAB = 100_000


@dataclass
class Luck:
    """Drafts of the MTP block: ``rates`` of being right by position. The block has an idea how likely each one is."""

    rates: Items[float]
    spread: float = 1.5  # the less, the surer it is

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """For ``n`` places in a text and all positions: bool[n, MAX_DRAFT] right, float32[n, MAX_DRAFT] probability."""
        rates = np.array(self.rates)
        certainty = rng.beta(rates * self.spread, (1.0 - rates) * self.spread, (n, MAX_DRAFT))
        probabilities = np.clip(certainty + rng.normal(0.0, 0.05, certainty.shape), 0.01, 1.0)
        return rng.random(certainty.shape) < certainty, probabilities.astype(np.float32)


GOOD = Luck((0.86, 0.82, 0.8, 0.78, 0.76, 0.75, 0.74))
BAD = Luck((0.3, 0.2, 0.15, 0.1, 0.1, 0.1, 0.1))


@dataclass
class Agent:
    """Answers with ``text``; what the MTP block would draft at each place of it is settled too."""

    text: np.ndarray
    is_right: np.ndarray
    probabilities: np.ndarray
    sequence: Sequence


def agent(number: int, depth: int, luck: Luck, n_copied: int = 0, seed: int = 0, n_text: int = 20_000) -> Agent:
    """At position ``depth``. Its text is new, or so many tokens at a time are copied out of the prompt."""
    rng = np.random.default_rng([seed, number])
    prompt = rng.integers(0, N_VOCAB, depth)
    text = rng.integers(0, N_VOCAB, n_text)
    if n_copied:
        for begin in range(20, len(text) - n_copied, n_copied + 20):
            source = int(rng.integers(0, depth - n_copied))
            text[begin : begin + n_copied] = prompt[source : source + n_copied]
    request = GenerationRequest(str(number), tuple(prompt.tolist()))
    sequence = Sequence(request, number, 0.0, depth + len(text), 64, N_VOCAB)
    sequence.n_computed = depth
    sequence.add_token(int(text[0]))
    sequence.add_pages(range(len(sequence.page_table)))
    return Agent(text, *luck.draw(rng, len(text)), sequence)


class Card:
    """Steps of agents on the card, until each has said enough."""

    def __init__(
        self, drafts: SpeculationSettings, *, stairs: bool = True, device: Callable[[], Computes] = H200
    ) -> None:
        limits = replace(LIMITS, speculation=drafts, max_spec=MAX_DRAFT, attention_blocks=BLOCKS_WITH_ATTENTION)
        prices = calibrate_drafts(device(), limits)
        steps = calibrate(device(), limits, prices[0] if prices else 0.0)
        self.speculation = Speculation(replace(limits, step_seconds=steps, draft_seconds=prices))
        self.stairs = stairs
        self.seconds = 0.0
        self.n_tokens = 0

    def run(self, agents: list[Agent], n_tokens: int) -> float:
        """Tokens per second until they have so many tokens more, all together."""
        seconds, begin = self.seconds, self.n_tokens
        while self.n_tokens < begin + n_tokens:
            self.step(agents)
        return (self.n_tokens - begin) / (self.seconds - seconds)

    def run_steps(self, agents: list[Agent], n_steps: int) -> float:
        """Tokens per second of so many steps."""
        seconds, begin = self.seconds, self.n_tokens
        for _ in range(n_steps):
            self.step(agents)
        return (self.n_tokens - begin) / (self.seconds - seconds)

    def step(self, agents: list[Agent]) -> None:
        sequences = [each.sequence for each in agents]
        joined = None
        if self.speculation.is_on:
            for sequence in sequences:
                self.speculation.start(sequence)
            self.speculation.choose(sequences, 0)
        plan = [(sequence, sequence.n_rows) for sequence in sequences]
        if self.speculation.is_on:
            joined = self.speculation.join(plan)
            self.speculation.think()  # of the steps before, while this one computes
        depth = float(np.mean([sequence.n_computed for sequence in sequences]))
        n_draft = RESTS if joined is None else max(s.n_draft for s in sequences)
        seconds = self.price([n for _, n in plan], n_draft, depth)
        self.seconds += seconds
        if self.speculation.is_on:
            self.speculation.observe(seconds)
        chosen = [self.verify(each) for each in agents]
        if not self.speculation.is_on:
            return
        self.speculation.read(self.result(agents), joined)
        for index, (each, tokens) in enumerate(zip(agents, chosen)):
            self.speculation.learn(self.speculation.note(each.sequence, index, tokens, len(tokens) - 1))

    def price(self, rows: Items[int], n_draft: int, depth: float) -> float:
        """Seconds of a step in which agents have so many rows each; their mean position is ``depth``."""
        return step_seconds(sum(rows), depth, stairs=self.stairs) + draft_seconds(n_draft)

    def verify(self, each: Agent) -> list[int]:
        """Tokens that a step gave an agent."""
        sequence = each.sequence
        following = each.text[len(sequence.generated) :][: MAX_DRAFT + 1].tolist()
        drafts = sequence.verifying
        n_right = next((i for i, draft in enumerate(drafts) if draft != following[i]), len(drafts))
        return self.take(sequence, following[: n_right + 1])

    def take(self, sequence: Sequence, tokens: list[int]) -> list[int]:
        sequence.take_drafts(tokens, self.seconds)
        self.n_tokens += len(tokens)
        return tokens

    def result(self, agents: list[Agent]) -> StepResult:
        """The drafts that the MTP block makes in this step."""
        drafts = np.full((len(agents), MAX_DRAFT), -1, np.int32)
        probabilities = np.zeros((len(agents), MAX_DRAFT), np.float32)
        for index, each in enumerate(agents):
            begin = len(each.sequence.generated)
            for j in range(each.sequence.n_draft):
                right = int(each.text[begin + j])
                drafts[index, j] = right if each.is_right[begin, j] else (right + 1) % N_VOCAB
            probabilities[index] = each.probabilities[begin]
        empty = np.empty((0, 1), np.float32)
        return StepResult(empty, empty, np.empty(0, np.int32), np.empty(0, np.int32), 0.0, drafts, probabilities)
