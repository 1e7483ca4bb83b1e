"""Follow-ups of four agents that come shortly after each other, on a clock driven by the step times of an H200."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.priced_server import MAX_ROWS, PricedStepper, calibrated, price
from pyjet.engine.core import EngineCore
from pyjet.engine.request import GenerationRequest, TokenEvent
from pyjet.engine.settings import EngineSettings
from tests.engine.core_run import GREEDY

N_AGENTS, CONTEXT, NEW, ANSWER = 4, 23_000, 200, 60
SUBMIT_SECONDS, PLAN_SECONDS = 0.0012, 0.001  # of the host, for each request and each step
FIRST_SECONDS = 0.005  # until the first request is there


class QuickPricedStepper(PricedStepper):
    """Tells what a step takes, and takes no time."""

    def wait(self, seconds: float) -> None:
        pass


class Agents:
    """Their conversations, and the engine with its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        limits = EngineSettings("", n_ctx_slot=131_072, n_ctx_total=131_072).limits(248_320)
        self._stepper = QuickPricedStepper()
        self._core = EngineCore(
            replace(limits, max_rows=MAX_ROWS, step_seconds=calibrated()), self._stepper, clock=lambda: self.now
        )
        self._rng = random.Random(1)
        self._histories = [self._tokens(CONTEXT) for _ in range(N_AGENTS)]
        self._numbers = iter(range(1000))

    def _tokens(self, n: int) -> list[int]:
        return [self._rng.randrange(248_320) for _ in range(n)]

    def ask(self, spread: float) -> dict[str, float]:
        """Seconds until each one's first token; ``spread`` lies between two requests."""
        begin, first = self.now, dict[str, float]()
        requests = [self._request(history) for history in self._histories]
        coming = iter([(begin + FIRST_SECONDS + i * spread, each) for i, each in enumerate(requests)])
        following = next(coming, None)
        while following is not None or self._core.has_work:
            if following is not None and not self._core.has_work:
                self.now = max(self.now, following[0])
            while following is not None and following[0] <= self.now:
                self._core.submit(following[1])
                self.now += SUBMIT_SECONDS
                following = next(coming, None)
            for event in self._step():
                first.setdefault(event.id, self.now - begin)
        while self._core.prepare():
            pass
        for history in self._histories:
            history += [100] * ANSWER + self._tokens(NEW)
        return first

    def _request(self, history: list[int]) -> GenerationRequest:
        return GenerationRequest(f"r{next(self._numbers)}", tuple(history), GREEDY, max_tokens=ANSWER)

    def _step(self) -> Iterator[TokenEvent]:
        _, batch = self._core.begin()
        assert batch is not None
        self.now += PLAN_SECONDS + price(len(batch.tokens))
        events = self._core.finish(self._stepper.step(batch))
        return (event for event in events if isinstance(event, TokenEvent))


@pytest.mark.parametrize("spread", [0.0, 0.002, 0.006, 0.01])
def test_the_last_agent_has_its_first_token_in_time(spread: float) -> None:
    """800 rows take 0.267 s in one step."""
    agents = Agents()
    agents.ask(0.0)  # reads the conversations
    worst = [max(agents.ask(spread).values()) for _ in range(4)]
    assert sorted(worst)[1] < 0.29 and max(worst) < 0.31
