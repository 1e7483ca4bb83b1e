"""Answers of Anthropic's Messages API: one message of content blocks, or the events that build it.

Blocks come in the order in which the model wrote them, and each is closed before the next one begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyjet.chat.types import PreparedChat
from pyjet.server.answer_parts import AnswerParts, Part, PartEvent, read_parts
from pyjet.server.choice import Chunk, Result
from pyjet.server.errors import ApiError
from pyjet.server.generation import Item
from pyjet.server.results import completion_id
from pyjet.server.sse import TypedEvents, frame

if TYPE_CHECKING:
    from pyjet.server.service import Service

Event = dict[str, Any]
_DELTAS = {
    "reasoning": ("thinking_delta", "thinking"),
    "content": ("text_delta", "text"),
    "tool": ("input_json_delta", "partial_json"),
}


class MessageFormat(TypedEvents):
    """One message. ``n_prompt``: tokens of the prompt. ``end_text`` ends the generation of a text that is complete."""

    end = b""

    def __init__(self, service: Service, prepared: PreparedChat, n_prompt: int, end_text: Callable[[], None]) -> None:
        self._service = service
        self._prepared = prepared
        self._n_prompt = n_prompt
        self._id = completion_id()
        self._answer = AnswerParts(prepared, end_text)
        self._started = False

    # streaming

    def frames(self, item: Item) -> list[Event]:
        if isinstance(item, Chunk):
            return self._begin(item.n_cached) + _block_events(self._answer.push(item.text))
        if isinstance(item, Result):
            events = self._begin(item.timings.cache_n) + _block_events(self._answer.finish(item))
            return [*events, self._message_delta(item), {"type": "message_stop"}]
        return []

    def encode_error(self, error: ApiError) -> bytes:
        return frame(error.error_object(), "error")

    def _begin(self, n_cached: int) -> list[Event]:
        if self._started:
            return []
        self._started = True
        message = self._message([], None, None, self._usage(n_cached, 0))
        return [{"type": "message_start", "message": message}]

    def _message_delta(self, result: Result) -> Event:
        delta = {
            "stop_reason": _stop_reason(result, self._answer.has_calls),
            "stop_sequence": result.stopping_word or None,
        }
        return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": result.n_decoded}}

    # one object

    def response(self, results: Sequence[Result]) -> Event:
        result = results[0]
        answer = read_parts(self._prepared, result)
        usage = self._usage(result.timings.cache_n, result.n_decoded)
        blocks = [_whole_block(part) for part in answer.parts]
        reason = _stop_reason(result, answer.has_calls)
        return self._message(blocks, reason, result.stopping_word or None, usage)

    def _usage(self, n_cached: int, n_decoded: int) -> dict[str, int]:
        """Cached tokens are not part of ``input_tokens``."""
        n_input = self._n_prompt - n_cached
        return {"cache_read_input_tokens": n_cached, "input_tokens": n_input, "output_tokens": n_decoded}

    def _message(
        self, content: list[Event], stop_reason: str | None, stop_sequence: str | None, usage: dict[str, int]
    ) -> Event:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self._service.model_id,
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": usage,
        }


def _stop_reason(result: Result, has_calls: bool) -> str:
    if result.is_cut:
        return "max_tokens"
    return "tool_use" if has_calls else "end_turn"


def _block_events(events: Sequence[PartEvent]) -> list[Event]:
    return [event for part_event in events for event in _block_event(part_event)]


def _block_event(event: PartEvent) -> list[Event]:
    index = event.part.index
    if event.kind == "start":
        return [{"type": "content_block_start", "index": index, "content_block": _empty_block(event.part)}]
    if event.kind == "delta":
        delta_type, key = _DELTAS[event.part.kind]
        return [_delta(index, {"type": delta_type, key: event.text})]
    stop: Event = {"type": "content_block_stop", "index": index}
    if event.part.kind != "reasoning":
        return [stop]
    return [_delta(index, {"type": "signature_delta", "signature": ""}), stop]  # nobody here signs thoughts


def _delta(index: int, delta: Event) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def _empty_block(part: Part) -> Event:
    if part.kind == "reasoning":
        return {"type": "thinking", "thinking": "", "signature": ""}
    if part.kind == "content":
        return {"type": "text", "text": ""}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}


def _whole_block(part: Part) -> Event:
    if part.kind == "tool":
        return {**_empty_block(part), "input": _arguments(part)}
    key = "thinking" if part.kind == "reasoning" else "text"
    return {**_empty_block(part), key: part.text}


def _arguments(part: Part) -> Any:
    """The arguments as a value; those of a call that was cut are not to be acted upon, so they are left out."""
    try:
        return json.loads(part.text)
    except ValueError:
        return {}
