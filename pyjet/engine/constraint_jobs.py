"""Grammars are compiled on a thread of their own: their requests wait for that, nobody else does."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyjet.engine.constraint import Constraint, Constraints
from pyjet.engine.request import GenerationRequest


@dataclass(frozen=True)
class Compiled:
    """A request whose grammar was compiled; ``constraint``: or a sentence that says why it could not be."""

    request: GenerationRequest
    constraint: Constraint | str
    t_begin: float  # when the request came, by time.perf_counter


class ConstraintJobs:
    """``waiting``: requests by id whose grammar is being compiled. All calls come from the engine's thread."""

    def __init__(self, constraints: Constraints | None, post: Callable[[Compiled], object]) -> None:
        self.waiting: dict[str, GenerationRequest] = {}
        self._constraints = constraints
        self._post = post
        self._requests: queue.SimpleQueue[tuple[GenerationRequest, float] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, request: GenerationRequest) -> None:
        """Compile a request's grammar; ``post`` gets the result."""
        self.waiting[request.id] = request
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pyjet-grammar", daemon=True)
            self._thread.start()
        self._requests.put((request, time.perf_counter()))

    def is_awaited(self, compiled: Compiled) -> bool:
        """Whether its request was not cancelled meanwhile; it does not wait any more."""
        if self.waiting.get(compiled.request.id) is not compiled.request:
            return False
        del self.waiting[compiled.request.id]
        return True

    def close(self) -> None:
        """Nothing more will come."""
        self._requests.put(None)

    def _run(self) -> None:
        while (job := self._requests.get()) is not None:
            request, t_begin = job
            self._post(Compiled(request, self._compile(request), t_begin))

    def _compile(self, request: GenerationRequest) -> Constraint | str:
        if self._constraints is None:
            return "this engine has no grammars"
        assert request.grammar is not None
        try:
            return self._constraints.constraint(request.grammar)
        except BaseException as error:  # a panic of the parser, too: whatever is wrong with it, the engine goes on
            return f"the grammar cannot be used: {error}"
