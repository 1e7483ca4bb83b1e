"""A request of Anthropic's Messages API as an OpenAI chat request.

Only what has a meaning here is taken over; other fields of the body are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyjet.server import jsonio
from pyjet.server.billing_header import without_billing_header
from pyjet.server.errors import ApiError, invalid_request

DEFAULT_MAX_TOKENS = 4096
DEFAULT_THINKING_TOKENS = 10000
_SAME_FIELDS = ("model", "temperature", "top_p", "top_k", "stream")

Message = dict[str, Any]


def chat_request(body: Any) -> dict[str, Any]:
    """The body for the chat endpoint. ApiError when there are no messages; anything else is checked there."""
    if not isinstance(body, dict) or "messages" not in body:
        raise ApiError(500, "'messages' is required")
    if not isinstance(body["messages"], list):
        raise invalid_request("Expected 'messages' to be an array")
    chat = {name: body[name] for name in _SAME_FIELDS if name in body}
    messages = _system(body.get("system"))
    for message in body["messages"]:
        messages += _messages(message if isinstance(message, dict) else {})
    chat |= {"messages": messages, "max_tokens": body.get("max_tokens", DEFAULT_MAX_TOKENS)}
    if isinstance(tools := body.get("tools"), list):
        chat["tools"] = [_tool(tool if isinstance(tool, dict) else {}) for tool in tools]
    chat |= _tool_choice(body.get("tool_choice"), chat.get("tools", []))
    if "stop_sequences" in body:
        chat["stop"] = body["stop_sequences"]
    return chat | _thinking(body)


def _system(system: Any) -> list[Message]:
    """The system prompt, a text or text blocks, as the first message."""
    if system is None:
        return []
    texts = [system] if isinstance(system, str) else [_text(block, "text") for block in _blocks(system, "text")]
    return [{"role": "system", "content": "".join(map(without_billing_header, texts))}]


def _messages(message: Message) -> list[Message]:
    """What one message becomes: itself, and a tool message for each result in it, which come after its text."""
    content = message.get("content")
    if "content" not in message and message.get("role") == "assistant":
        return []
    if not isinstance(content, list):
        return [message]
    spoken: Message = {
        "content": [part for block in content for part in _content_parts(block)],
        "tool_calls": [_tool_call(block) for block in _blocks(content, "tool_use")],
        "reasoning_content": "".join(_text(block, "thinking") for block in _blocks(content, "thinking")),
    }
    results = [_tool_message(block) for block in _blocks(content, "tool_result")]
    if not any(spoken.values()):
        return results
    found = {name: value for name, value in spoken.items() if value}
    return [{"role": message.get("role", ""), "content": "", **found}, *results]


def _blocks(content: Any, kind: str) -> Iterator[Message]:
    """The blocks of one type."""
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == kind:
            yield block


def _text(block: Mapping[str, Any], name: str) -> str:
    value = block.get(name)
    return value if isinstance(value, str) else ""


def _content_parts(block: Any) -> Iterator[Message]:
    """A text as it is, an image as an image part, which the chat endpoint answers."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        yield {"type": "text", "text": block.get("text", "")}
    elif kind == "image":
        yield {"type": "image_url", "image_url": {"url": _image_url(block.get("source"))}}


def _image_url(source: Any) -> str:
    source = source if isinstance(source, dict) else {}
    if source.get("type") == "base64":
        return f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return _text(source, "url")


def _tool_call(block: Message) -> Message:
    arguments = block.get("input")
    text = jsonio.dump({} if arguments is None else arguments).decode()
    function = {"name": _text(block, "name"), "arguments": text}
    return {"id": _text(block, "id"), "type": "function", "function": function}


def _tool_message(block: Message) -> Message:
    content = block.get("content")
    if isinstance(content, list):
        parts = [part for item in content for part in _content_parts(item)]
        is_text = all(part["type"] == "text" for part in parts)
        content = "".join(_text(part, "text") for part in parts) if is_text else parts
    elif not isinstance(content, str):
        content = ""
    return {"role": "tool", "tool_call_id": _text(block, "tool_use_id"), "content": content}


def _tool(tool: Message) -> Message:
    schema = tool.get("input_schema")
    function = {
        "name": tool.get("name", ""),
        "description": _text(tool, "description"),
        "parameters": {} if schema is None else schema,
    }
    return {"type": "function", "function": function}


def _tool_choice(choice: Any, tools: list[Message]) -> dict[str, Any]:
    """The chat request's ``tool_choice`` and ``parallel_tool_calls``, where the client asks for something."""
    if not isinstance(choice, dict):
        return {}
    kind = choice.get("type")
    fields: dict[str, Any] = {}
    if kind in ("auto", "none"):
        fields["tool_choice"] = kind
    elif kind in ("any", "tool"):
        name = choice.get("name")
        is_known = kind == "tool" and any(tool["function"]["name"] == name for tool in tools)
        fields["tool_choice"] = {"type": "function", "function": {"name": name}} if is_known else "required"
    if choice.get("disable_parallel_tool_use") is True:
        fields["parallel_tool_calls"] = False
    return fields


def _thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """The thinking budget, and template arguments; "disabled" switches thinking off."""
    fields: dict[str, Any] = {}
    kwargs = body.get("chat_template_kwargs")
    thinking = body["thinking"] if isinstance(body.get("thinking"), dict) else {}
    kind = thinking.get("type")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        fields["thinking_budget_tokens"] = DEFAULT_THINKING_TOKENS if budget is None else budget
    elif kind == "disabled":
        kwargs = {"enable_thinking": False, **(kwargs if isinstance(kwargs, dict) else {})}
    if kwargs is not None:
        fields["chat_template_kwargs"] = kwargs
    return fields
