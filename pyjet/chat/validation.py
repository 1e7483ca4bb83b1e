"""Checks of an OpenAI chat request, in llama-server's order and words.

A message that fails here is the client's to fix, so the texts are part of the interface: tools and tests match on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pyjet.chat.types import ChatError

T = TypeVar("T")

_MEDIA_KINDS = {"image_url": "image", "input_audio": "audio", "input_video": "video", "video_url": "video"}
_JSON_NAMES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object",
               type(None): "null"}


def field(body: Mapping[str, Any], key: str, kind: type[T], default: T) -> T:
    """`body[key]` when it has the wanted type, else the default: llama-server reads most chat fields this leniently."""
    value = body.get(key)
    if kind is int and isinstance(value, bool | float):
        return int(value)  # type: ignore[return-value]
    return value if isinstance(value, kind) and not (kind is not bool and isinstance(value, bool)) else default


def dump(value: Any, indent: int | None = None) -> str:
    """JSON as it appears inside error messages."""
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=None if indent else (",", ":"))


def json_type_name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), "object")


def constraint_of(body: Mapping[str, Any]) -> tuple[Any, bool, str]:
    """(JSON schema or None, strict, grammar text) that `json_schema`, `grammar` and `response_format` ask for."""
    is_strict = False
    schema = body.get("json_schema")
    grammar = field(body, "grammar", str, "")
    if schema is not None and grammar:
        raise ChatError(500, "Cannot use both json_schema and grammar", "server_error")
    response_format = field(body, "response_format", dict, {})
    kind = field(response_format, "type", str, "")
    if kind == "json_object":
        if "schema" in response_format or not schema:
            schema = response_format.get("schema")
            schema = {} if schema is None else schema
    elif kind == "json_schema":
        wrapper = field(response_format, "json_schema", dict, {})
        schema = wrapper.get("schema")
        schema = {} if schema is None else schema
        is_strict = wrapper.get("strict") is True
    elif kind not in ("", "text"):
        raise ChatError(400, f'response_format type must be one of "text" or "json_object", but got: {kind}')
    return ({"type": "object"} if schema == {} else schema), is_strict, grammar


def check_messages(body: Mapping[str, Any]) -> list[Any]:
    """The `messages` list, each content of an acceptable kind."""
    if "messages" not in body:
        raise ChatError(400, "'messages' is required")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise ChatError(400, "Expected 'messages' to be an array")
    for message in messages:
        _check_content(message if isinstance(message, dict) else {})
    return messages


def _check_content(message: Mapping[str, Any]) -> None:
    if "content" not in message:
        if field(message, "role", str, "") != "assistant":
            raise ChatError(400, "All non-assistant messages must contain 'content'")
        if "tool_calls" not in message:
            raise ChatError(400, "Assistant message must contain either 'content' or 'tool_calls'!")
        return
    content = message["content"]
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise ChatError(400, "Expected 'content' to be a string or an array")
    check_parts(content)


def check_parts(parts: list[Any]) -> None:
    """Every part of a content is text; ChatError for others."""
    for part in parts:
        kind = field(part, "type", str, "") if isinstance(part, dict) else ""
        if kind in _MEDIA_KINDS:
            raise ChatError(500, f"{_MEDIA_KINDS[kind]} input is not supported - hint: if this is unexpected, "
                                 "you may need to provide the mmproj", "server_error")
        if kind != "text":
            raise ChatError(400, "unsupported content[].type")


def _bad_message(reason: str) -> ChatError:
    return ChatError(500, f"Failed to parse messages: {reason}", "server_error")


def parse_messages(messages: list[Any]) -> list[dict[str, Any]]:
    """Messages reduced to the keys a template may see.

    `content` is a string or a list of text parts; `tool_calls` entries have type, function and perhaps id, with
    `arguments` as the client sent them. Call check_messages() first.
    """
    return [_parse_message(message) for message in messages]


def _parse_message(message: dict[str, Any]) -> dict[str, Any]:
    if "role" not in message:
        raise _bad_message(f"Missing 'role' in message: {dump(message)}")
    parsed: dict[str, Any] = {"role": _string(message, "role"), "content": _parse_content(message.get("content"))}
    for key in ("reasoning_content", "reasoning"):  # one meaning, two spellings among clients
        if isinstance(message.get(key), str) and message[key]:
            parsed["reasoning_content"] = message[key]
            break
    for key in ("name", "tool_call_id"):
        if message.get(key) is not None:
            value = _string(message, key)
            if value:
                parsed[key] = value
    calls = message.get("tool_calls")
    if calls is not None:
        parsed_calls = [_parse_call(call) for call in (calls if isinstance(calls, list) else [calls])]
        if parsed_calls:
            parsed["tool_calls"] = parsed_calls
    return parsed


def _parse_content(content: Any) -> str | list[dict[str, str]]:
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if "text" not in part:
            raise _bad_message("[json.exception.out_of_range.403] key 'text' not found")
    return [{"type": "text", "text": _string(part, "text")} for part in content]


def _string(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    if not isinstance(text, str):
        raise _bad_message(f"[json.exception.type_error.302] type must be string, but is {json_type_name(text)}")
    return text


def _parse_call(call: Any) -> dict[str, Any]:
    call_dict = call if isinstance(call, dict) else {}
    if "type" not in call_dict:
        raise _bad_message(f"Missing tool call type: {dump(call)}")
    if call_dict["type"] != "function":
        raise _bad_message(f"Unsupported tool call type: {dump(call)}")
    if "function" not in call_dict:
        raise _bad_message(f"Missing tool call function: {dump(call)}")
    function = call_dict["function"] if isinstance(call_dict["function"], dict) else {}
    if "name" not in function:
        raise _bad_message(f"Missing tool call name: {dump(call)}")
    if "arguments" not in function:
        raise _bad_message("[json.exception.out_of_range.403] key 'arguments' not found")
    parsed: dict[str, Any] = {
        "type": "function",
        "function": {"name": _string(function, "name"), "arguments": function["arguments"]},
    }
    if call_dict.get("id") is not None:
        parsed["id"] = _string(call_dict, "id")
    return parsed


def parse_tools(tools: Any) -> list[dict[str, Any]]:
    """Tools in the one form templates see; unknown keys such as `strict` are dropped."""
    if tools is None:
        return []

    def bad(reason: str) -> ChatError:
        return ChatError(500, f"Failed to parse tools: {reason}; tools = {dump(tools, indent=2)}", "server_error")

    if not isinstance(tools, list):
        raise bad(f"Expected 'tools' to be an array, got {dump(tools)}")
    parsed = []
    for tool in tools:
        entry = tool if isinstance(tool, dict) else {}
        if "type" not in entry:
            raise bad(f"Missing tool type: {dump(tool)}")
        if entry["type"] != "function":
            raise bad(f"Unsupported tool type: {dump(tool)}")
        if "function" not in entry:
            raise bad(f"Missing tool function: {dump(tool)}")
        function = entry["function"] if isinstance(entry["function"], dict) else {}
        if "name" not in function:
            raise bad("[json.exception.out_of_range.403] key 'name' not found")
        if not isinstance(function["name"], str):
            raise bad("[json.exception.type_error.302] type must be string, but is "
                      f"{json_type_name(function['name'])}")
        parsed.append({"type": "function", "function": {
            "name": function["name"],
            "description": field(function, "description", str, ""),
            "parameters": function["parameters"] if function.get("parameters") is not None else {},
        }})
    return parsed


def parse_tool_choice(body: Mapping[str, Any]) -> str | dict[str, Any]:
    """The `tool_choice` field: a word, or OpenAI's object that names one function; "auto" for anything else."""
    choice = body.get("tool_choice")
    return choice if isinstance(choice, str | dict) else "auto"


def check_tool_choice(choice: str | dict[str, Any], tools: list[dict[str, Any]]) -> str:
    """The choice as "auto", "none", "required", or "named" for an object that names one of the tools."""
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise ChatError(400, f"Invalid tool_choice: {choice}")
        return choice
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    if not isinstance(name, str):
        raise ChatError(400, f"Invalid tool_choice: {dump(choice)}")
    if name not in (tool["function"]["name"] for tool in tools):
        raise ChatError(400, f"Invalid tool_choice: unknown function '{name}'")
    return "named"
