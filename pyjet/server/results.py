"""Answers of the native ``/completion`` endpoint and of OpenAI's text completions."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyjet.server.choice import Chunk, Result
from pyjet.server.completion_params import CompletionParams
from pyjet.server.generation import Item, Progress
from pyjet.server.generation_settings import generation_settings
from pyjet.server.service import BUILD_INFO
from pyjet.server.sse import DONE, DataEvents
from pyjet.server.timings import timings_json, usage_json

if TYPE_CHECKING:
    from pyjet.server.service import Service

_ID_LETTERS = string.ascii_letters + string.digits


def random_id(length: int = 32) -> str:
    """Random letters and digits, as llama-server's ids have them."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(length))


def completion_id() -> str:
    """Also on text completions ids begin with ``chatcmpl-``."""
    return "chatcmpl-" + random_id()


def progress_json(progress: Progress) -> dict[str, Any]:
    """The last keys of an event about the prompt: ``timings`` when wanted, then ``prompt_progress``."""
    counts = {
        "total": progress.total,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": progress.time_ms,
    }
    keys: dict[str, Any] = {} if progress.timings is None else {"timings": timings_json(progress.timings)}
    return {**keys, "prompt_progress": counts}


def result_usage(result: Result) -> dict[str, Any]:
    return usage_json(len(result.prompt), result.n_decoded, result.timings.cache_n)


def select_fields(result: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """``response_fields``: ``a/b`` picks a nested value under that whole name; missing ones are left out."""
    selected: dict[str, Any] = {}
    for path in paths:
        value: Any = result
        for key in path.split("/"):
            if not isinstance(value, dict) or key not in value:
                break
            value = value[key]
        else:
            selected[path] = value
    return selected


class NativeFormat(DataEvents):
    """``/completion``: one object per event, no ``[DONE]``."""

    end = b""

    def __init__(self, service: Service, params: CompletionParams) -> None:
        self._service = service
        self._params = params
        self._n_prompt: dict[int, int] = {}

    def start(self, prompts: Sequence[Sequence[int]]) -> None:
        """Tell the prompts (tokens) before the first item: chunks show their lengths."""
        n = self._params.n_cmpl
        self._n_prompt = {index: len(prompts[index // n]) for index in range(len(prompts) * n)}

    def frames(self, item: Item) -> list[dict[str, Any]]:
        if isinstance(item, Chunk) and not item.incomplete:
            return [self.chunk(item)]
        if isinstance(item, Progress):
            return [{**self._partial(item.index, "", 0, 0), **progress_json(item)}]
        if isinstance(item, Result):
            return [self.result(item)]
        return []

    def response(self, results: Sequence[Result]) -> Any:
        """An object for one text, else a list by index."""
        objects = [self.result(result) for result in results]
        return objects[0] if len(objects) == 1 else objects

    def chunk(self, chunk: Chunk) -> dict[str, Any]:
        event = self._partial(chunk.index, chunk.text, chunk.token, chunk.n_decoded)
        if chunk.timings is not None:
            event["timings"] = timings_json(chunk.timings)
        if chunk.probs is not None:
            event["completion_probabilities"] = [chunk.probs]
        return event

    def _partial(self, index: int, text: str, token: int, n_decoded: int) -> dict[str, Any]:
        return {
            "index": index,
            "content": text,
            "tokens": [token],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": n_decoded,
            "tokens_evaluated": self._n_prompt.get(index, 0),
        }

    def result(self, result: Result) -> dict[str, Any]:
        """The final object; in a stream its text and tokens are empty, they were in the chunks."""
        stream = self._params.stream
        final: dict[str, Any] = {
            "index": result.index,
            "content": "" if stream else result.content + result.tail,
            "tokens": [] if stream else result.tokens,
            "id_slot": result.slot,
            "stop": True,
            "model": self._service.model_id,
            "tokens_predicted": result.n_decoded,
            "tokens_evaluated": len(result.prompt),
            "generation_settings": generation_settings(self._params),
            "prompt": self._service.tokenizer.decode(list(result.prompt), special=True),
            "has_new_line": result.has_new_line,
            "truncated": result.truncated,
            "stop_type": result.stop_type,
            "stopping_word": result.stopping_word,
            "tokens_cached": result.n_context,
            "timings": timings_json(result.timings),
        }
        if result.probs and not stream:
            final["completion_probabilities"] = result.probs
        return select_fields(final, self._params.response_fields) if self._params.response_fields else final


class TextFormat(DataEvents):
    """``/v1/completions``: OpenAI's text completion object."""

    end = DONE

    def __init__(self, service: Service, params: CompletionParams) -> None:
        self._service = service
        self._params = params
        self._native = NativeFormat(service, params)
        self._id = completion_id()

    def start(self, prompts: Sequence[Sequence[int]]) -> None:
        self._native.start(prompts)

    def frames(self, item: Item) -> list[dict[str, Any]]:
        if isinstance(item, Chunk) and not item.incomplete:
            return [self._chunk(item)]
        if isinstance(item, Progress):
            event = {**self._head("", item.index, None, None), "id": self._id}
            return [{**event, **progress_json(item)}]
        if isinstance(item, Result):
            return [self._result(item, "")]
        return []

    def response(self, results: Sequence[Result]) -> dict[str, Any]:
        """All texts in ``choices``; ``usage`` and ``timings`` are the first one's."""
        objects = [self._result(result, result.content + result.tail) for result in results]
        objects[0]["choices"] = [choice for one in objects for choice in one["choices"]]
        return objects[0]

    def _head(self, text: str, index: int, probs: list[dict[str, Any]] | None, reason: str | None) -> dict[str, Any]:
        logprobs = {"content": probs} if probs else None
        return {
            "choices": [{"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}],
            "created": int(time.time()),
            "model": self._service.model_id,
            "system_fingerprint": BUILD_INFO,
            "object": "text_completion",
        }

    def _chunk(self, chunk: Chunk) -> dict[str, Any]:
        probs = [chunk.probs] if chunk.probs is not None else None
        event = {**self._head(chunk.text, chunk.index, probs, None), "id": self._id}
        if self._params.verbose:
            event["__verbose"] = self._native.chunk(chunk)
        if chunk.timings is not None:
            event["timings"] = timings_json(chunk.timings)
        return event

    def _result(self, result: Result, text: str) -> dict[str, Any]:
        reason = "stop" if result.stop_type in ("word", "eos") else "length"
        probs = None if self._params.stream else result.probs
        event = self._head(text, result.index, probs, reason)
        event["usage"] = result_usage(result)
        event["id"] = self._id
        if self._params.verbose:
            event["__verbose"] = self._native.result(result)
        event["timings"] = timings_json(result.timings)
        return event
