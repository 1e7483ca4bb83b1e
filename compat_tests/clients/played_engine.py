"""The real engine with pyjet-tiny, whose choice of tokens is replaced by a play.

Prompts are read, pages and states kept and reused, steps shared and requests cancelled as for everybody; only the token
that a step chooses is another one. So an agent's long prompts meet the whole server, and the model, which is too small
for them, still does the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pyjet.assets import default_model_path
from pyjet.engine.build import build_constraints, build_native
from pyjet.engine.chosen import Chosen
from pyjet.engine.constraint import Constraint, Constraints
from pyjet.engine.core import EngineCore
from pyjet.engine.local import LocalEngine
from pyjet.engine.request import Event, GenerationRequest
from pyjet.engine.sequence import Sequence
from pyjet.engine.settings import EngineSettings

Answer = Callable[[tuple[int, ...]], list[int]]
"""Tokens of a prompt to the tokens of its answer, the end token included."""


class PlayedCore(EngineCore):
    """Takes the tokens of ``answer`` for those that steps choose."""

    def __init__(self, *arguments: Any, answer: Answer, constraints: Constraints) -> None:
        super().__init__(*arguments, constraints=constraints)
        self._answer = answer
        self._answers: dict[str, list[int]] = {}  # of running requests, by id

    def submit(
        self, request: GenerationRequest, constraint: Constraint | None = None, waited: float = 0.0
    ) -> list[Event]:
        """A play follows no grammar."""
        return super().submit(replace(request, grammar=None), None, waited)

    def _goes_on(self, sequence: Sequence, tokens: list[int]) -> bool:
        """Tokens of the device are never taken as they are."""
        return False

    def _take_tokens(self, sequence: Sequence, chosen: Iterator[Chosen], index: int, t_step: float) -> None:
        super()._take_tokens(sequence, self._played(sequence, chosen), index, t_step)
        if sequence.request.id not in self._running:
            self._answers.pop(sequence.request.id, None)

    def _played(self, sequence: Sequence, chosen: Iterator[Chosen]) -> Iterator[Chosen]:
        request = sequence.request
        if request.id not in self._answers:
            self._answers[request.id] = self._answer(tuple(request.prompt))
        tokens = self._answers[request.id]
        for each in chosen:
            yield each._replace(token=tokens[min(len(sequence.generated), len(tokens) - 1)], probs=None)


def played_engine(answer: Answer, n_ctx: int = 65536) -> LocalEngine:
    """Four slots that share ``n_ctx`` tokens; each may use all of them."""
    settings = EngineSettings(str(default_model_path()), n_ctx_slot=n_ctx, n_ctx_total=n_ctx, n_threads=2)
    stepper, limits = build_native(settings, lambda _stage, _done, _total: None)
    core = PlayedCore(limits, stepper, answer=answer, constraints=build_constraints(settings))
    return LocalEngine(stepper, limits, core=core)
