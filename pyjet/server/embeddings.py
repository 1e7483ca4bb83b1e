"""Running the embeddings of one HTTP request: which rows make them, a few inputs at a time, and their length."""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyjet.engine.request import EmbeddingEvent, Event, FailedEvent, FinishedEvent, GenerationRequest, Pooling
from pyjet.server.errors import ApiError
from pyjet.server.generation import POLL_SECONDS, ClientGone, api_error
from pyjet.server.request_log import request_line

if TYPE_CHECKING:
    from pyjet.engine.client import RequestStream
    from pyjet.server.service import Service

Rows = npt.NDArray[np.float32]

# {architecture}.pooling_type, by number; 4 is "rank", a reranker's head.
_MODEL_POOLINGS: dict[int, Pooling] = {0: "none", 1: "mean", 2: "cls", 3: "last"}
_MOST_FLOATS = 16 * 1024 * 1024  # of one answer with all rows: its JSON is twenty times as many bytes

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class UnknownPooling(ValueError):
    """The model's own kind of pooling cannot be done here."""


def pooling_of(option: Pooling | None, metadata: Mapping[str, Any]) -> Pooling:
    """The option's, else the model's own; a model that names none has "none". Raises UnknownPooling."""
    if option is not None:
        return option
    number = metadata.get(f"{metadata.get('general.architecture')}.pooling_type", 0)
    if number not in _MODEL_POOLINGS:
        raise UnknownPooling(
            f"the model's pooling_type is {number!r}, and only none (0), mean (1), cls (2) and last (3) work: it is "
            "not made for embeddings; give --pooling to use it nevertheless"
        )
    return _MODEL_POOLINGS[number]


def normalized(rows: Rows, norm: int) -> Rows:
    """float32[n, width], each row divided by its length. ``norm``: -1 nothing, 0 the largest is 32760, p the p-norm.

    Rows of zeros stay.
    """
    if norm < 0:
        return rows
    values = np.abs(rows.astype(np.float64))
    with np.errstate(over="ignore", under="ignore"):
        lengths = values.max(axis=1) / 32760.0 if norm == 0 else (values**norm).sum(axis=1) ** (1.0 / norm)
    factors = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0).astype(np.float32)
    return rows * factors[:, None]


def check_inputs(service: Service, prompts: Sequence[Sequence[int]], pooling: Pooling) -> None:
    """ApiError for inputs of which all rows are wanted and that are too large for that."""
    if pooling != "none":
        return
    n_batch = service.options.ubatch_size
    for prompt in prompts:
        if len(prompt) > n_batch:
            raise ApiError(
                500,
                f"input ({len(prompt)} tokens) is too large to process. increase the physical batch size "
                f"(current batch size: {n_batch})",
            )
    n_tokens, width = sum(map(len, prompts)), service.model.hyperparams.n_embd
    if n_tokens * width > _MOST_FLOATS:
        raise ApiError(
            400, f"{n_tokens} tokens give more rows than fit into one answer; at most {_MOST_FLOATS // width} do"
        )


class EmbeddingJob:
    """The inputs of one request, which :meth:`run` reads in order.

    Only a few are in the engine at a time, one slot less than there are: many inputs are no reason for others to wait
    until all of them are done.
    """

    def __init__(self, service: Service, prompts: Sequence[Sequence[int]], pooling: Pooling, priority: int) -> None:
        self._service = service
        self._window = max(1, service.n_slots - 1)
        self._waiting = deque(
            GenerationRequest(
                f"embedding-{next(_numbers)}", tuple(prompt), max_tokens=1, pooling=pooling, priority=priority,
                cache_prompt=service.options.cache_prompt,
            )
            for prompt in prompts
        )  # fmt: skip
        self._open: deque[RequestStream] = deque()

    def run(self, client_gone: Callable[[], bool]) -> list[Rows]:
        """float32[m, width] of each input. ClientGone when the client leaves; ApiError on failure."""
        results = []
        try:
            while self._waiting or self._open:
                while self._waiting and len(self._open) < self._window:
                    self._open.append(self._service.engine.submit(self._waiting.popleft()))
                results.append(self._follow(self._open[0], client_gone))
                self._open.popleft()
        finally:
            for stream in self._open:
                self._service.engine.cancel(stream.id)
        return results

    def _follow(self, stream: RequestStream, client_gone: Callable[[], bool]) -> Rows:
        parts: list[Rows] = []
        next_look = time.monotonic() + POLL_SECONDS
        while True:
            event: Event | None = stream.get(POLL_SECONDS)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + POLL_SECONDS
                if client_gone():
                    raise ClientGone
            if isinstance(event, EmbeddingEvent):
                parts.append(event.rows)
            elif isinstance(event, FinishedEvent):
                _log.info(request_line(event))
                return np.concatenate(parts)
            elif isinstance(event, FailedEvent):
                raise api_error(event)
