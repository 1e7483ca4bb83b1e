"""Running the generations of one HTTP request: submit, follow, stop early, cancel when the client is gone."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from pyjet.server import context_shift
from pyjet.server.choice import Choice, Chunk, Result
from pyjet.server.completion_params import CompletionParams
from pyjet.server.errors import ApiError, exceeds_context
from pyjet.server.merged_streams import MergedStreams
from pyjet.server.prompts import message_starts
from pyjet.server.request_log import request_line
from pyjet.server.writing import Writing

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
        self._n_ctx = params.profile.context(service.n_ctx_slot)
        check_prompts(service, prompts, self._n_ctx)
        self.params = params
        self.prompts = prompts
        self._service = service
        requests = [request for prompt in prompts for request in self._requests(prompt)]
        self._writings = [
            Writing(Choice(index, request, params, service.tokenizer, special=service.options.special))
            for index, request in enumerate(requests)
        ]
        self._by_id: dict[str, Writing] = {}
        self._events = MergedStreams(single=len(requests) == 1)
        self._open: set[int] = set()

    @property
    def is_running(self) -> bool:
        return bool(self._open)

    def _requests(self, prompt: Sequence[int]) -> list[GenerationRequest]:
        """The ``n`` requests for one prompt."""
        tokens, starts = tuple(prompt), message_starts(prompt, self._service.turn_start)
        return [self._request(tokens, starts, choice) for choice in range(self.params.n_cmpl)]

    def _request(self, prompt: tuple[int, ...], boundaries: tuple[int, ...], choice: int) -> GenerationRequest:
        params = self.params
        return GenerationRequest(
            id=_new_id(),
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
            grammar=params.rules,
        )

    def items(self) -> Iterator[Item | None]:
        """What happens, as it happens; None when nothing did for ``POLL_SECONDS``.

        Raises ApiError when a generation fails; the others are cancelled then.
        """
        for writing in self._writings:
            choice = writing.choice
            if not choice.request.prompt:
                yield _empty_result(choice)
                continue
            if choice.must_end_thoughts:
                self._force_end(writing, None)
            self._open.add(choice.index)
            self._submit(writing)
        while self._open:
            event = self._events.get(POLL_SECONDS)
            if event is None:
                yield None
            elif (writing_now := self._by_id.get(event.id)) is not None:
                yield from self._follow(writing_now, event)

    def _submit(self, writing: Writing) -> None:
        self._by_id[writing.request.id] = writing
        self._events.add(self._service.engine.submit(writing.request))

    def _follow(self, writing: Writing, event: Event) -> Iterator[Item]:
        index = writing.choice.index
        if isinstance(event, StartedEvent):
            self._service.idle_slots.started(event.slot)
            yield Started(index)
        elif isinstance(event, ProgressEvent):
            yield self._progress(index, event)
        elif isinstance(event, TokenEvent):
            yield from self._tell_forced(writing, event)
            yield from self._token(writing, event)
        elif isinstance(event, FinishedEvent):
            yield from self._tell_forced(writing, event)
            if self._shift_context(writing, event):
                return
            self._open.discard(index)
            event = replace(event, timings=writing.total(event.timings))
            _log.info(request_line(event))
            self._service.idle_slots.finished(event.slot, event.n_context)
            rest, result = writing.choice.finish(event)
            if rest is not None:
                yield rest
            yield result
        elif isinstance(event, FailedEvent):
            self._open.discard(index)
            self.cancel()
            raise api_error(event)

    def _token(self, writing: Writing, event: TokenEvent) -> Iterator[Chunk]:
        choice = writing.choice
        if choice.stopped:  # tokens of the step in which a stop string was found are nobody's
            return
        writing.memory = event.memory
        chunk = choice.add(event._replace(timings=writing.total(event.timings)))
        if choice.stopped:
            self._service.engine.cancel(event.id, keep_tokens=writing.n_kept)
        elif choice.must_end_thoughts and event.token not in choice.request.stop_ids:
            self._force_end(writing, event.timings)
        yield chunk

    def _force_end(self, writing: Writing, timings: Timings | None) -> None:
        """End the thoughts here, if the answer has room for that; ``timings``: what the running request took."""
        rule = self.params.thoughts
        if rule is None or not writing.has_room(len(rule.end), self._n_ctx):
            return
        old_id, n_kept = writing.request.id, writing.n_kept
        writing.force(rule.end, _new_id(), timings)
        if timings is not None:
            self._by_id.pop(old_id)
            self._submit(writing)  # first, so that it gets the place that the other one leaves
            self._service.engine.cancel(old_id, keep_tokens=n_kept)

    def _shift_context(self, writing: Writing, event: FinishedEvent) -> bool:
        """Whether the text goes on although the slot is full: then without some of its oldest tokens."""
        service, params, choice = self._service, self.params, writing.choice
        limit = choice.request.max_tokens
        if not service.options.context_shift or event.reason != "context" or choice.stopped:
            return False
        if 0 <= limit <= choice.n_decoded:
            return False
        n_prompt, has_bos = len(choice.request.prompt), service.tokenizer.add_bos
        n_start = context_shift.n_kept(params.n_keep, n_prompt, service.n_ctx_slot, has_bos=has_bos)
        tokens = context_shift.shifted(writing.tokens, n_start, params.n_discard)
        writing.shift(tokens, _new_id(), event.timings)
        self._by_id.pop(event.id)
        self._submit(writing)
        return True

    def _tell_forced(self, writing: Writing, event: TokenEvent | FinishedEvent) -> Iterator[Chunk]:
        """Tokens that were put into the text come with the first event of the request that goes on behind them."""
        tokens, writing.untold = writing.untold, ()
        timings = writing.total(event.timings)
        for token in tokens:
            if not writing.choice.stopped:
                yield writing.choice.add(TokenEvent(event.id, token, None, timings))
        if tokens and writing.choice.stopped:
            self._service.engine.cancel(event.id, keep_tokens=0)

    def _progress(self, index: int, event: ProgressEvent) -> Progress:
        n_read = event.processed - event.cached
        so_far = Timings(event.cached, n_read, event.time_ms if n_read else 0.0)
        timings = so_far if self.params.timings_per_token else None
        return Progress(index, event.total, event.cached, event.processed, int(event.time_ms), timings)

    def end_choice(self, index: int) -> None:
        """End one text now as if a stop string had been found after its last token."""
        writing = self._writings[index]
        if index in self._open and not writing.choice.stopped:
            writing.choice.end_early()
            self._service.engine.cancel(writing.request.id, keep_tokens=writing.n_kept)

    def end_thoughts(self) -> None:
        """Make the model stop thinking, if it thinks. May be called from any thread."""
        for writing in self._writings:
            writing.choice.end_thoughts()

    def cancel(self) -> None:
        """Cancel what still runs. Idempotent."""
        for index in list(self._open):
            self._service.engine.cancel(self._writings[index].request.id)
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


def _new_id() -> str:
    return f"http-{next(_request_numbers)}"


def check_prompts(service: Service, prompts: Sequence[Sequence[int]], n_ctx: int) -> None:
    """ApiError 400 for token ids outside the vocabulary and for prompts that do not fit into ``n_ctx`` tokens."""
    n_vocab = service.tokenizer.n_vocab
    for prompt in prompts:
        if prompt and not 0 <= min(prompt) <= max(prompt) < n_vocab:
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
