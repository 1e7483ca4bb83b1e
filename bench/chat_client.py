"""Chats with a llama-server-compatible server, and the tokens that it reads and writes for them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any


class ServerError(Exception):
    """The server refused a request, or answered without what is needed."""


@dataclass(frozen=True)
class Answer:
    """What came back for one chat request."""

    message: dict[str, Any]  # as received, with content, reasoning_content and tool_calls
    tokens: list[int]  # all that was generated
    cached: int  # prompt tokens that the server reused
    processed: int  # prompt tokens that it read


def post(url: str, path: str, body: dict[str, Any], timeout: float = 600) -> dict[str, Any]:
    """The JSON answer to a POST of JSON."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ServerError(f"{path}: HTTP {error.code}: {error.read(500)!r}") from error
    except (OSError, ValueError) as error:
        raise ServerError(f"{path}: {type(error).__name__}: {error}") from error


def prompt_tokens(url: str, chat: dict[str, Any]) -> list[int]:
    """The tokens of a chat request's prompt."""
    prompt = post(url, "/apply-template", chat)["prompt"]
    return post(url, "/tokenize", {"content": prompt, "add_special": True, "parse_special": True})["tokens"]


def ask(url: str, chat: dict[str, Any]) -> Answer:
    """Answer a chat request. ServerError when tokens or timings are missing."""
    body = post(url, "/v1/chat/completions", {**chat, "verbose": True, "return_tokens": True})
    try:
        timings, tokens = body["timings"], body["__verbose"]["tokens"]
        answer = Answer(body["choices"][0]["message"], tokens, timings["cache_n"], timings["prompt_n"])
        n_generated = timings["predicted_n"]
    except (KeyError, IndexError) as error:
        raise ServerError(f"the answer has no {error}: this needs timings, verbose and return_tokens") from error
    if len(tokens) != n_generated:
        raise ServerError(f"{len(tokens)} tokens were returned, but {n_generated} were generated")
    return answer
