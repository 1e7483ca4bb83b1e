"""The recorded chats and their verdicts."""

from __future__ import annotations

import json
from typing import Any

from compat_tests.eval.__main__ import count
from compat_tests.eval.chats import is_right, load_chats, openai_messages, request_body


def answer_for(expected: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [{"function": {"name": c["name"], "arguments": json.dumps(c["arguments"])}} for c in expected]
    return {"role": "assistant", "tool_calls": calls}


def test_there_are_forty_chats() -> None:
    chats = load_chats()
    assert len(chats) == len({chat.id for chat in chats}) == 40


def test_the_expected_calls_are_right_and_others_are_not() -> None:
    chats = load_chats()
    answers = [answer_for(chat.expected) for chat in chats]
    assert all(is_right(chat, message) for chat, message in zip(chats, answers))
    assert count(chats, answers)["all"] == (40, 40)
    chat = next(chat for chat in chats if chat.expected)
    assert not is_right(chat, {"content": "no"})
    assert not is_right(chat, {"tool_calls": [{"function": {"name": "x", "arguments": "{broken"}}]})


def test_messages_have_the_endpoints_form() -> None:
    history = [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"é": 1}}}]},
        {"role": "tool", "content": "done"},
    ]
    assistant, tool = openai_messages(history)
    assert assistant["tool_calls"][0]["function"]["arguments"] == '{"é": 1}'
    assert assistant["tool_calls"][0]["id"] == tool["tool_call_id"]
    json.dumps([request_body(chat) for chat in load_chats()])
