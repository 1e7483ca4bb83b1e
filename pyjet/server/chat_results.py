"""Answers of the OpenAI chat endpoint: one object, or role, deltas, finish reason and usage as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyjet.chat.stream_parser import ChatStreamParser
from pyjet.chat.types import Delta, PreparedChat
from pyjet.server.choice import Chunk, Result
from pyjet.server.completion_params import CompletionParams
from pyjet.server.generation import Item, Progress
from pyjet.server.results import NativeFormat, completion_id, progress_json, result_usage
from pyjet.server.service import BUILD_INFO
from pyjet.server.sse import DONE, DataEvents
from pyjet.server.timings import timings_json

if TYPE_CHECKING:
    from pyjet.server.service import Service

_ROLE = {"role": "assistant", "content": None}


class ChatFormat(DataEvents):
    """One chat answer. Streaming keeps a parser per index; ``end_choice(index)`` ends a text that is complete."""

    end = DONE

    def __init__(self, service: Service, params: CompletionParams, prepared: PreparedChat) -> None:
        self.end_choice: Callable[[int], None] = lambda index: None
        self._service = service
        self._params = params
        self._prepared = prepared
        self._native = NativeFormat(service, params)
        self.id = completion_id()
        self._parsers: dict[int, ChatStreamParser] = {}
        self._role_sent: set[int] = set()
        self._ended: set[int] = set()
        self._called: set[int] = set()
        self._results: dict[int, Result] = {}

    # streaming

    def frames(self, item: Item) -> list[dict[str, Any]]:
        if isinstance(item, Chunk):
            return self._chunk(item)
        if isinstance(item, Progress):
            return [{**self._event(item.index, dict(_ROLE)), **progress_json(item)}]
        if isinstance(item, Result):
            return self._finish(item)
        return []

    def _chunk(self, chunk: Chunk) -> list[dict[str, Any]]:
        events = self._role(chunk.index)
        if not chunk.incomplete:
            deltas = self._parser(chunk.index).push(chunk.text)
            events += [self._event(chunk.index, delta.to_openai()) for delta in self._allowed(chunk.index, deltas)]
        if events and chunk.probs is not None:
            events[-1]["choices"][0]["logprobs"] = {"content": [chunk.probs]}
        if events and chunk.timings is not None:
            events[-1]["timings"] = timings_json(chunk.timings)
        return events

    def _finish(self, result: Result) -> list[dict[str, Any]]:
        index = result.index
        events = self._role(index)
        deltas = self._parser(index).finish(truncated=_truncated(result))
        events += [self._event(index, delta.to_openai()) for delta in self._allowed(index, deltas)]
        events.append(self._event(index, {}, _finish_reason(result, index in self._called)))
        self._results[index] = result
        if not self._params.include_usage:
            events[-1]["timings"] = timings_json(result.timings)
        elif len(self._results) == self._params.n_cmpl:
            events.append(self._usage(self._results[0]))
        if self._params.verbose:
            events[0]["__verbose"] = self._native.result(result)
        return events

    def _usage(self, first: Result) -> dict[str, Any]:
        """The very last event: it covers the first choice only."""
        usage, timings = result_usage(first), timings_json(first.timings)
        return {"choices": [], **self._head(), "usage": usage, "timings": timings}

    def _parser(self, index: int) -> ChatStreamParser:
        if index not in self._parsers:
            self._parsers[index] = ChatStreamParser(self._prepared)
        return self._parsers[index]

    def _allowed(self, index: int, deltas: Sequence[Delta]) -> list[Delta]:
        """Without ``parallel_tool_calls`` the second call is the end of the text."""
        allowed: list[Delta] = []
        for delta in deltas:
            if index in self._ended:
                break
            if delta.kind == "tool_start" and delta.index > 0 and not self._prepared.parallel_tool_calls:
                self._ended.add(index)
                self.end_choice(index)
                break
            if delta.kind == "tool_start":
                self._called.add(index)
            allowed.append(delta)
        return allowed

    def _role(self, index: int) -> list[dict[str, Any]]:
        if index in self._role_sent:
            return []
        self._role_sent.add(index)
        return [self._event(index, dict(_ROLE))]

    def _event(self, index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {"choices": [{"finish_reason": reason, "index": index, "delta": delta}], **self._head()}

    def _head(self) -> dict[str, Any]:
        return {
            "created": int(time.time()),
            "id": self.id,
            "model": self._service.model_id,
            "system_fingerprint": BUILD_INFO,
            "object": "chat.completion.chunk",
        }

    # one object

    def response(self, results: Sequence[Result]) -> dict[str, Any]:
        """All texts in ``choices``; ``usage`` and ``timings`` are the first one's."""
        first = results[0]
        answer: dict[str, Any] = {
            "choices": [self._choice(result) for result in results],
            "created": int(time.time()),
            "model": self._service.model_id,
            "system_fingerprint": BUILD_INFO,
            "object": "chat.completion",
            "usage": result_usage(first),
            "id": self.id,
        }
        if self._params.verbose:
            answer["__verbose"] = self._native.result(first)
        answer["timings"] = timings_json(first.timings)
        return answer

    def _choice(self, result: Result) -> dict[str, Any]:
        parser = ChatStreamParser(self._prepared)
        parser.push(result.content)
        parser.finish(truncated=_truncated(result))
        message = parser.message().to_openai()
        if not self._prepared.parallel_tool_calls and "tool_calls" in message:
            message["tool_calls"] = message["tool_calls"][:1]
        choice: dict[str, Any] = {
            "finish_reason": _finish_reason(result, "tool_calls" in message),
            "index": result.index,
            "message": message,
        }
        if result.probs:
            choice["logprobs"] = {"content": result.probs}
        return choice


def _truncated(result: Result) -> bool:
    """Whether the text ended where the model did not want it to."""
    return result.stop_type != "eos"


def _finish_reason(result: Result, has_calls: bool) -> str:
    if result.stop_type not in ("eos", "word"):
        return "length"
    return "tool_calls" if has_calls else "stop"
