"""Validated messages brought into the form that one template can render.

Nothing moves: a message that the template cannot take as it is becomes one that it can, at the same place, so that the
prompt of the next turn still begins with the prompt of this one.
"""

from __future__ import annotations

import json
from typing import Any

from pyjet.chat.json_stream import repair_object
from pyjet.chat.template import ChatTemplate

Message = dict[str, Any]


def for_template(messages: list[Message], template: ChatTemplate) -> list[Message]:
    """Messages for `template.render`; the input is left alone."""
    caps = template.caps
    result = [dict(message) for message in messages]
    for message in result:
        if message["role"] == "developer" and "<|channel|>" not in template.source:
            message["role"] = "system"
        if message["role"] == "assistant" and template.has_think_tags:
            split_thoughts(message)
        message["content"] = _content_form(message["content"], caps)
        if "tool_calls" in message:
            message["tool_calls"] = [_call_form(call, caps["supports_object_arguments"])
                                     for call in message["tool_calls"]]
    if not caps["supports_system_role"]:
        return _system_into_next(result)
    if not template.allows_late_system:
        result = _late_system_as_user(_merge_leading_system(result), caps)
    return result


def plain_text(content: str | list[dict[str, str]], separator: str = "") -> str:
    """The text of a content, parts joined by `separator`."""
    return content if isinstance(content, str) else separator.join(part["text"] for part in content)


def _content_form(content: str | list[dict[str, str]], caps: dict[str, bool]) -> str | list[dict[str, str]]:
    """Strings wherever the template takes them; typed parts for a template that only reads lists."""
    if caps["supports_string_content"]:
        return plain_text(content, "" if caps["supports_typed_content"] else "\n")
    if caps["supports_typed_content"] and isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


def split_thoughts(message: Message) -> None:
    """Move thoughts that a client left inside `content` to where the template looks for them."""
    content = message["content"]
    if "reasoning_content" in message or not isinstance(content, str):
        return
    text = content.lstrip()
    end = text.find("</think>")
    if not text.startswith("<think>") or end < 0:
        return
    thoughts = text[len("<think>"):end].strip("\n")
    if thoughts:
        message["reasoning_content"] = thoughts
    message["content"] = text[end + len("</think>"):].lstrip("\n")


def _call_form(call: Message, as_object: bool) -> Message:
    function = call["function"]
    arguments = function["arguments"]
    if as_object and isinstance(arguments, str):
        arguments = _parse_arguments(arguments)
    elif not as_object and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _parse_arguments(text: str) -> Any:
    """Arguments as an object. A call cut by a token limit comes back unclosed: its whole part is kept."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return repair_object(text)


def _system_into_next(messages: list[Message]) -> list[Message]:
    """A leading system message joins the next message, for templates that know no system role."""
    if not messages or messages[0]["role"] != "system":
        return messages
    if len(messages) == 1:
        return []
    joined = plain_text(messages[0]["content"]) + "\n" + plain_text(messages[1]["content"])
    return [{**messages[1], "content": joined}, *messages[2:]]


def _merge_leading_system(messages: list[Message]) -> list[Message]:
    count = 0
    while count < len(messages) and messages[count]["role"] == "system":
        count += 1
    if count < 2:
        return messages
    merged = "\n\n".join(plain_text(message["content"]) for message in messages[:count])
    return [{**messages[0], "content": merged}, *messages[count:]]


def _late_system_as_user(messages: list[Message], caps: dict[str, bool]) -> list[Message]:
    """A later system message becomes a user block of its own, `<system>…</system>`, for templates that refuse it."""
    result = messages[:1]
    for message in messages[1:]:
        if message["role"] == "system":
            text = f"<system>\n{plain_text(message['content']).strip()}\n</system>"
            message = {"role": "user", "content": _content_form(text, caps)}
        result.append(message)
    return result
