"""Answers of OpenAI's Responses API: one response object with output items, or the events that build it.

Items come in the order in which the model wrote them. Each is done before the next one is added, so ``output_index``
never goes back, and a client can act on a call while the next one is being written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyjet.chat.types import PreparedChat
from pyjet.engine.request import Timings
from pyjet.server.answer_parts import AnswerParts, read_parts
from pyjet.server.choice import Chunk, Result
from pyjet.server.generation import Item, Progress
from pyjet.server.response_items import item_events, output_item
from pyjet.server.results import progress_json, random_id
from pyjet.server.sse import TypedEvents
from pyjet.server.timings import timings_json

if TYPE_CHECKING:
    from pyjet.server.service import Service

Event = dict[str, Any]


class ResponseFormat(TypedEvents):
    """One response. ``end_text`` ends the generation of a text that is complete."""

    end = b""

    def __init__(self, service: Service, prepared: PreparedChat, end_text: Callable[[], None]) -> None:
        self._service = service
        self._prepared = prepared
        self._id = "resp_" + random_id()
        self._created_at = int(time.time())
        self._answer = AnswerParts(prepared, end_text)
        self._started = False
        self._n_events = 0

    # streaming

    def frames(self, item: Item) -> list[Event]:
        if isinstance(item, Chunk):
            return self._numbered(self._chunk(item))
        if isinstance(item, Progress):
            return self._numbered(self._progress(item))
        if isinstance(item, Result):
            return self._numbered(self._finish(item))
        return []

    def _chunk(self, chunk: Chunk) -> list[Event]:
        events = self._begin() + item_events(self._answer.push(chunk.text))
        return _with_timings(events, chunk.timings)

    def _progress(self, progress: Progress) -> list[Event]:
        events = self._begin() or [self._lifecycle("response.in_progress")]
        return [*events[:-1], {**events[-1], **progress_json(progress)}]

    def _finish(self, result: Result) -> list[Event]:
        events = self._begin() + item_events(self._answer.finish(result))
        completed = {"type": "response.completed", "response": self._response(self._answer, result)}
        return [*events, {**completed, "timings": timings_json(result.timings)}]

    def _begin(self) -> list[Event]:
        if self._started:
            return []
        self._started = True
        return [self._lifecycle("response.created"), self._lifecycle("response.in_progress")]

    def _lifecycle(self, kind: str) -> Event:
        response = {
            "id": self._id,
            "object": "response",
            "created_at": self._created_at,
            "status": "in_progress",
            "model": self._service.model_id,
            "output": [],
        }
        return {"type": kind, "response": response}

    def _numbered(self, events: list[Event]) -> list[Event]:
        first = self._n_events
        self._n_events += len(events)
        return [{**event, "sequence_number": first + number} for number, event in enumerate(events)]

    # one object

    def response(self, results: Sequence[Result]) -> Event:
        return self._response(read_parts(self._prepared, results[0]), results[0])

    def _response(self, answer: AnswerParts, result: Result) -> Event:
        """llama-server calls a response completed also when a limit ended it; then the last item is incomplete."""
        n_prompt, n_decoded = len(result.prompt), result.n_decoded
        response = {
            "completed_at": int(time.time()),
            "created_at": self._created_at,
            "id": self._id,
            "model": self._service.model_id,
            "object": "response",
            "output": [output_item(part) for part in answer.parts],
            "status": "completed",
            "usage": {
                "input_tokens": n_prompt,
                "output_tokens": n_decoded,
                "total_tokens": n_prompt + n_decoded,
                "input_tokens_details": {"cached_tokens": result.timings.cache_n},
            },
        }
        if result.is_cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return response


def _with_timings(events: list[Event], timings: Timings | None) -> list[Event]:
    """Timings that the client wants with each token stand in the last event of a token."""
    if not events or timings is None:
        return events
    return [*events[:-1], {**events[-1], "timings": timings_json(timings)}]
