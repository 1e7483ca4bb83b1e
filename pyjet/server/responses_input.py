"""The ``input`` of a Responses request: a text, or items that become chat messages.

An assistant's turn comes as several items (thoughts, texts, calls); neighbours become one message.
"""

from __future__ import annotations

from typing import Any

from pyjet.server.errors import invalid_request

Message = dict[str, Any]
Item = dict[str, Any]

_TEXT_KINDS = ("input_text", "output_text", "text")
_NO_IMAGE = "[an image, which this model cannot see]"


def chat_messages(value: Any) -> list[Message]:
    """Messages of a chat request. ApiError 400 names what cannot be understood."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise invalid_request("'input' must be a string or array of objects")
    messages: list[Message] = []
    for item in value:
        _add(messages, item if isinstance(item, dict) else {})
    return messages


def _add(messages: list[Message], item: Item) -> None:
    kind, role = item.get("type"), item.get("role")
    if role in ("user", "system", "developer") and isinstance(item.get("content"), (str, list)):
        messages.append({"role": role, "content": _user_content(item["content"])})
    elif role == "assistant" and kind in ("message", None):
        _assistant(messages)["content"] += _assistant_content(item.get("content"))
    elif kind == "function_call" and _has_texts(item, "arguments", "call_id", "name"):
        _assistant(messages).setdefault("tool_calls", []).append(_call(item))
    elif kind == "function_call_output" and _has_texts(item, "call_id") and isinstance(item.get("output"), (str, list)):
        content = _output_content(item["output"])
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind == "reasoning" and isinstance(item.get("summary"), list):
        _add_thoughts(messages, item.get("content"))
    else:
        raise invalid_request("Cannot determine type of 'item'")


def _assistant(messages: list[Message]) -> Message:
    """The assistant message that items at this place belong to."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    return messages[-1]


def _has_texts(item: Item, *names: str) -> bool:
    return all(isinstance(item.get(name), str) for name in names)


def _text_part(part: Item, where: str) -> Message:
    if not isinstance(part.get("text"), str):
        raise invalid_request(f"'{where}' requires 'text'")
    return {"type": "text", "text": part["text"]}


def _user_content(content: str | list[Any]) -> str | list[Message]:
    return content if isinstance(content, str) else [_user_part(part) for part in content]


def _user_part(part: Any) -> Message:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_KINDS:
        return _text_part(part, "Input text")
    if kind == "input_image":
        if "image_url" not in part:
            raise invalid_request("'image_url' is required")
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    if kind == "input_file":
        raise invalid_request("'input_file' is not supported by llamacpp at this moment")
    raise invalid_request("'type' must be one of 'input_text', 'input_image', or 'input_file'")


def _assistant_content(content: Any) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_assistant_part(part) for part in content] if isinstance(content, list) else []


def _assistant_part(part: Any) -> Message:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_KINDS:
        return _text_part(part, "Output text")
    if kind == "refusal":
        if not isinstance(part.get("refusal"), str):
            raise invalid_request("'Refusal' requires 'refusal'")
        return {"type": "text", "text": part["refusal"]}
    raise invalid_request("'type' must be one of 'output_text' or 'refusal'")


def _call(item: Item) -> Message:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _output_content(output: str | list[Any]) -> str | list[Message]:
    """A tool's result. Agents that look at pictures go on without them rather than end here."""
    return output if isinstance(output, str) else [_output_part(part) for part in output]


def _output_part(part: Any) -> Message:
    if not isinstance(part, dict) or "type" not in part:
        raise invalid_request("Output of tool call missing 'type' field")
    if part["type"] in _TEXT_KINDS:
        return _text_part(part, "Input text")
    if part["type"] == "input_image":
        return {"type": "text", "text": _NO_IMAGE}
    raise invalid_request("Output of tool call should be 'Input text' or 'Input image'")


def _add_thoughts(messages: list[Message], content: Any) -> None:
    """Earlier thoughts, if the client has them as text."""
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not texts:
        return
    message = _assistant(messages)
    earlier = message.get("reasoning_content")
    message["reasoning_content"] = "\n".join(texts if earlier is None else [earlier, *texts])
