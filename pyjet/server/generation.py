"""Running the generations of one HTTP request: submit, follow, stop early, cancel when the client is gone."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjet.engine.client import RequestStream
from pyjet.engine.request import (
    Event,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    ProgressEvent,
    StartedEvent,
    Timings,
    TokenEvent,
)
from pyjet.server.choice import Choice, Chunk, Result
from pyjet.server.completion_params import CompletionParams
from pyjet.server.errors import ApiError, exceeds_context
from pyjet.server.prompts import message_starts
from pyjet.server.request_log import request_line

if TYPE_CHECKING:
    from pyjet.server.service import Service

POLL_SECONDS = 0.1
"""How often a waiting request looks whether its client is still there."""

_log = logging.getLogger(__name__)
_request_numbers = itertools.count(1)


class ClientGone(Exception):
    """The client closed its connection; the work is cancelled, nobody reads an answer."""


@dataclass(frozen=True)
class Started:
    """A generation has its slot: HTTP headers may go out."""

    index: int


@dataclass(frozen=True)
class Progress:
    """``processed`` of ``total`` prompt tokens are read, ``cached`` of them were reused.

    ``timings`` are set when the client wants them with every event.
    """

    index: int
    total: int
    cached: int
    processed: int
    time_ms: int
    timings: Timings | None = None


Item = Started | Progress | Chunk | Result


class Job:
    """All generations of one HTTP request: every prompt times ``n``, numbered by ``index``.

    The constructor checks the prompts (ApiError 400) and queues nothing; :meth:`items` does. After an error or an
    early end of the consumer :meth:`cancel` must be called; it does nothing once all is done.
    """

    def __init__(self, service: Service, params: CompletionParams, prompts: Sequence[Sequence[int]]) -> None:
        check_prompts(service, prompts, params.profile.context(service.n_ctx_slot))
        self.params = params
        self._service = service
        requests = [request for prompt in prompts for request in self._requests(prompt)]
        self._choices = [
            Choice(index, request, params, service.tokenizer, special=service.options.special)
            for index, request in enumerate(requests)
        ]
        self._open: set[int] = set()

    def _requests(self, prompt: Sequence[int]) -> list[GenerationRequest]:
        """The ``n`` requests for one prompt."""
        tokens, starts = tuple(prompt), message_starts(prompt, self._service.turn_start)
        return [self._request(tokens, starts, choice) for choice in range(self.params.n_cmpl)]

    def _request(self, prompt: tuple[int, ...], boundaries: tuple[int, ...], choice: int) -> GenerationRequest:
        params = self.params
        return GenerationRequest(
            id=f"http-{next(_request_numbers)}",
            prompt=prompt,
            sampling=params.sampling(choice),
            max_tokens=params.max_tokens(self._service.options.n_predict, len(prompt)),
            stop_ids=self._service.tokenizer.eog_ids,
            n_probs=max(0, params.n_probs),
            post_sampling_probs=params.post_sampling_probs,
            id_slot=params.id_slot if choice == 0 else -1,
            priority=params.priority,
            return_progress=params.return_progress and params.stream,
            cache_prompt=params.cache_prompt,
            boundaries=boundaries,
        )

    def items(self) -> Iterator[Item | None]:
        """What happens, as it happens; None when nothing did for ``POLL_SECONDS``.

        Raises ApiError when a generation fails; the others are cancelled then.
        """
        streams: list[RequestStream] = []
        for choice in self._choices:
            if choice.request.prompt:
                streams.append(self._service.engine.submit(choice.request))
                self._open.add(choice.index)
            else:
                yield _empty_result(choice)
        events = _MergedStreams(streams)
        by_id = {choice.request.id: choice for choice in self._choices}
        while self._open:
            event = events.get(POLL_SECONDS)
            if event is None:
                yield None
                continue
            yield from self._follow(by_id[event.id], event)

    def _follow(self, choice: Choice, event: Event) -> Iterator[Item]:
        if isinstance(event, StartedEvent):
            yield Started(choice.index)
        elif isinstance(event, ProgressEvent):
            yield self._progress(choice.index, event)
        elif isinstance(event, TokenEvent):
            if not choice.stopped:  # tokens of the step in which a stop string was found are nobody's
                chunk = choice.add(event)
                if choice.stopped:
                    self._service.engine.cancel(event.id, keep_tokens=choice.n_decoded)
                yield chunk
        elif isinstance(event, FinishedEvent):
            self._open.discard(choice.index)
            _log.info(request_line(event))
            rest, result = choice.finish(event)
            if rest is not None:
                yield rest
            yield result
        else:
            self._open.discard(choice.index)
            self.cancel()
            raise api_error(event)

    def _progress(self, index: int, event: ProgressEvent) -> Progress:
        n_read = event.processed - event.cached
        so_far = Timings(event.cached, n_read, event.time_ms if n_read else 0.0)
        timings = so_far if self.params.timings_per_token else None
        return Progress(index, event.total, event.cached, event.processed, int(event.time_ms), timings)

    def end_choice(self, index: int) -> None:
        """End one text now as if a stop string had been found after its last token."""
        choice = self._choices[index]
        if index in self._open and not choice.stopped:
            choice.end_early()
            self._service.engine.cancel(choice.request.id, keep_tokens=choice.n_decoded)

    def cancel(self) -> None:
        """Cancel what still runs. Idempotent."""
        for index in list(self._open):
            self._service.engine.cancel(self._choices[index].request.id)
        self._open.clear()

    def run(self, client_gone: Callable[[], bool]) -> list[Result]:
        """Wait for all texts, by index. ClientGone within a second of the client's leaving; ApiError on failure."""
        results: dict[int, Result] = {}
        last_look = time.monotonic()
        try:
            for item in self.items():
                if isinstance(item, Result):
                    results[item.index] = item
                now = time.monotonic()
                if item is None or now - last_look > POLL_SECONDS:
                    last_look = now
                    if client_gone():
                        raise ClientGone
        finally:
            self.cancel()
        return [results[index] for index in sorted(results)]


def check_prompts(service: Service, prompts: Sequence[Sequence[int]], n_ctx: int) -> None:
    """ApiError 400 for token ids outside the vocabulary and for prompts that do not fit into ``n_ctx`` tokens."""
    n_vocab = service.tokenizer.n_vocab
    for prompt in prompts:
        if any(not 0 <= token < n_vocab for token in prompt):
            raise ApiError(400, "Prompt contains invalid tokens")
        if len(prompt) >= n_ctx:
            raise exceeds_context(len(prompt), n_ctx)


def api_error(event: FailedEvent) -> ApiError:
    """The HTTP form of an engine failure."""
    if event.kind == "context":
        return exceeds_context(event.n_prompt, event.n_ctx)
    return ApiError(503 if event.kind == "unavailable" else 500, event.message)


def _empty_result(choice: Choice) -> Result:
    """An empty prompt is answered at once, with nothing."""
    return choice.finish(FinishedEvent(choice.request.id, "none", -1, Timings()))[1]


class _MergedStreams:
    """Events of several engine streams in the order of their arrival; one stream is read directly."""

    def __init__(self, streams: Sequence[RequestStream]) -> None:
        self._single = streams[0] if len(streams) == 1 else None
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        if self._single is None:
            for stream in streams:
                threading.Thread(target=self._pump, args=(stream,), name="merge-events", daemon=True).start()

    def _pump(self, stream: RequestStream) -> None:
        for event in stream:
            self._events.put(event)

    def get(self, timeout: float) -> Event | None:
        if self._single is not None:
            return self._single.get(timeout)
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None
