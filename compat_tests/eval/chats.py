"""The recorded chats, as requests to an OpenAI-compatible server, and the verdict on an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHATS = Path(__file__).resolve().parents[1] / "data" / "eval-chats.jsonl"


@dataclass(frozen=True)
class Chat:
    """One chat: what is sent and the calls that must come back."""

    id: str
    kind: str
    enable_thinking: bool
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    expected: list[dict[str, Any]]

    @property
    def question(self) -> str:
        """What the user said last."""
        return next(str(m["content"]) for m in reversed(self.messages) if m["role"] == "user")


def load_chats(path: Path = CHATS) -> list[Chat]:
    """Read the JSON lines; `arguments` in them are objects, not strings."""
    chats = []
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        chats.append(
            Chat(
                id=str(record["id"]),
                kind=record.get("kind", "chat"),
                enable_thinking=record.get("enable_thinking", True),
                tools=record.get("tools") or [],
                messages=record["messages"],
                expected=[{"name": c["name"], "arguments": c["arguments"]} for c in record["expected"]],
            )
        )
    return chats


def openai_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The endpoint's form: call ids, and arguments as JSON text."""
    found, open_ids = [], []
    for i, original in enumerate(messages):
        message = dict(original)
        if calls := message.get("tool_calls"):
            open_ids = [f"call_{i}_{k}" for k in range(len(calls))]
            message["tool_calls"] = [_openai_call(name, call["function"]) for name, call in zip(open_ids, calls)]
        elif message["role"] == "tool":
            message["tool_call_id"] = open_ids.pop(0) if open_ids else "call_unknown"
        found.append(message)
    return found


def _openai_call(call_id: str, function: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": function["name"], "arguments": arguments}}


def request_body(chat: Chat) -> dict[str, Any]:
    """Body of POST /v1/chat/completions: greedy, at most 512 tokens."""
    body: dict[str, Any] = {
        "model": "pyjet-tiny",
        "messages": openai_messages(chat.messages),
        "temperature": 0,
        "max_tokens": 512,
        "parallel_tool_calls": True,
        "chat_template_kwargs": {"enable_thinking": chat.enable_thinking},
    }
    if chat.tools:
        body["tools"] = chat.tools
    return body


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Names and parsed arguments of an answer's calls; None when arguments are not JSON."""
    try:
        return [
            {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}
            for call in message.get("tool_calls") or []
        ]
    except ValueError:
        return None


def is_right(chat: Chat, message: dict[str, Any]) -> bool:
    """Number, order, names and all arguments of the calls are as expected."""
    return calls_of(message) == chat.expected
