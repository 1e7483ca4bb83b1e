"""Anthropic's SDK, Messages."""

from __future__ import annotations

from typing import Any

import anthropic
import task

TOOL = {"name": task.NAME, "description": task.DESCRIPTION, "input_schema": task.SCHEMA}


def ask(client: anthropic.Anthropic, messages: list[Any], streamed: bool) -> Any:
    fields: dict[str, Any] = {
        "model": "pyjet-tiny", "max_tokens": 400, "system": task.SYSTEM, "messages": messages, "tools": [TOOL],
        "extra_body": {"temperature": 0},
    }  # fmt: skip
    if not streamed:
        return client.messages.create(**fields)
    with client.messages.stream(**fields) as stream:
        return stream.get_final_message()


def change(url: str, streamed: bool) -> str:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": task.QUESTION}]
    for _ in range(task.MAX_TURNS):
        answer = ask(client, messages, streamed)
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in answer.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": task.edit_file(**call.input)} for call in calls
        ]
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    return ""


task.run(change)
