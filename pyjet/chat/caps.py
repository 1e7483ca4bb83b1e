"""What a chat template can express, found out by rendering small conversations and looking for marked texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Render = Callable[..., "str | None"]  # (messages, tools=None, kwargs=None) -> text, or None when the template raised

_MARK = "pyjet-probe-mark"
_TOOL = {"type": "function",
         "function": {"name": "probe_tool", "description": "A probe.",
                      "parameters": {"type": "object", "properties": {"arg": {"type": "string"}}, "required": ["arg"]}}}


def _message(role: str, content: Any, **extra: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **extra}


def _call(name: str, arguments: Any, number: int = 1) -> dict[str, Any]:
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _tool_round(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        _message("user", "Question"),
        _message("assistant", "", tool_calls=list(calls)),
        _message("tool", "Result", tool_call_id="call00001"),
        _message("assistant", "Answer"),
        _message("user", "Question"),
    ]


def _contains(text: str | None, *marks: str) -> bool:
    return text is not None and all(mark in text for mark in marks)


def probe_caps(render: Render) -> dict[str, bool]:
    """The capability flags that need rendering, keyed as in /props `chat_template_caps`."""
    typed = render([_message("user", [{"type": "text", "text": _MARK}])])
    objects = render(_tool_round(_call("probe_call", {"arg": _MARK})), [_TOOL])
    strings = render(_tool_round(_call("probe_call", f'{{"arg": "{_MARK}"}}')), [_TOOL])
    supports_objects = _contains(objects, "probe_call", _MARK)
    arguments: Any = {"arg": _MARK} if supports_objects else f'{{"arg": "{_MARK}"}}'
    parallel = render(_tool_round(_call("probe_call", arguments), _call("second_call", arguments, 2)), [_TOOL])
    with_calls = objects if supports_objects else strings
    return {
        "supports_string_content": _contains(render([_message("user", _MARK)]), _MARK),
        # a template that only prints its input shows the list's own syntax
        "supports_typed_content": _contains(typed, _MARK) and not _contains(typed, "{'") and not _contains(typed, '{"'),
        "supports_tools": _contains(with_calls, "probe_tool"),
        "supports_tool_calls": _contains(with_calls, "probe_call"),
        "supports_parallel_tool_calls": _contains(parallel, "second_call"),
        "supports_system_role": _contains(render([_message("system", _MARK), _message("user", "Hi")]), _MARK),
        "supports_preserve_reasoning": _preserves_reasoning(render),
        "supports_object_arguments": supports_objects,
    }


def probe_late_system(render: Render) -> bool:
    """True when a system message after an answer appears in the prompt between its neighbours."""
    text = render([_message("user", "Question-1"), _message("assistant", "Answer-1"), _message("system", _MARK),
                   _message("user", "Question-2")])
    return text is not None and text.find("Answer-1") < text.find(_MARK) < text.find("Question-2")


def _preserves_reasoning(render: Render) -> bool:
    history = [
        _message("user", "Question"),
        _message("assistant", "Answer", reasoning_content=_MARK),
        _message("user", "Question"),
        _message("assistant", "Answer", reasoning_content="Thoughts"),
        _message("user", "Question"),
    ]
    kwargs: Mapping[str, Any] = {"preserve_reasoning": True}
    return _contains(render(history, None, kwargs=kwargs), _MARK)
