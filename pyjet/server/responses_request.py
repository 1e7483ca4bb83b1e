"""A request of OpenAI's Responses API as a chat request. Nothing is stored: the client sends the whole history."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyjet.server.errors import invalid_request
from pyjet.server.responses_input import chat_messages

_log = logging.getLogger(__name__)

# fields of the Responses API that become others, or that a chat request reads in another sense
_REPLACED = ("input", "instructions", "tools", "tool_choice", "max_output_tokens", "reasoning", "text", "n", "n_cmpl")


def chat_request(body: Any) -> dict[str, Any]:
    """The body for the chat endpoint; fields that both have, and llama-server's own, stay. ApiError 400."""
    if not isinstance(body, dict) or "input" not in body:
        raise invalid_request("'input' is required")
    previous = body.get("previous_response_id")
    if isinstance(previous, str) and previous:
        raise invalid_request("llama.cpp does not support 'previous_response_id'.")
    chat = {name: value for name, value in body.items() if name not in _REPLACED}
    chat["messages"] = _instructions(body) + chat_messages(body["input"])
    tools = _tools(body)
    if tools:
        chat["tools"] = tools
    chat |= _tool_choice(body.get("tool_choice"))
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = body["max_output_tokens"]
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict) and "effort" in reasoning:
        chat["reasoning_effort"] = reasoning["effort"]
    return chat | _text_format(body.get("text"))


def _instructions(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = body.get("instructions")
    return [{"role": "system", "content": text}] if isinstance(text, str) and text else []


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Function tools in the nested form of a chat request; the others exist only on OpenAI's servers."""
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise invalid_request("'tools' must be an array of objects")
    functions = []
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind == "function":
            functions.append({"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}})
        else:
            _log.warning("a tool of type %r was skipped: only functions can be called", kind)
    return functions


def _tool_choice(choice: Any) -> dict[str, Any]:
    """A word, or one function; an object that chooses among tools that were skipped leaves it to the model."""
    if isinstance(choice, dict):
        choice = {"type": "function", "function": choice} if choice.get("type") == "function" else "auto"
    return {} if choice is None else {"tool_choice": choice}


def _text_format(text: Any) -> dict[str, Any]:
    """``text.format``: a schema for the answer, which a chat request calls ``response_format``."""
    form = text.get("format") if isinstance(text, dict) else None
    form = form if isinstance(form, dict) else {}
    kind = form.get("type")
    if kind == "json_schema":
        return {"response_format": {"type": kind, "json_schema": {k: v for k, v in form.items() if k != "type"}}}
    return {"response_format": {"type": kind}} if kind == "json_object" else {}
