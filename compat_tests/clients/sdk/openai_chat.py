"""OpenAI's SDK, chat completions."""

from __future__ import annotations

import json
from typing import Any

import openai
import task

TOOL = {
    "type": "function",
    "function": {"name": task.NAME, "description": task.DESCRIPTION, "parameters": task.SCHEMA},
}


def ask(client: openai.OpenAI, messages: list[Any], streamed: bool) -> Any:
    fields: dict[str, Any] = {"model": "pyjet-tiny", "messages": messages, "tools": [TOOL], "temperature": 0}
    if not streamed:
        return client.chat.completions.create(**fields).choices[0].message
    with client.chat.completions.stream(**fields) as stream:
        return stream.get_final_completion().choices[0].message


def change(url: str, streamed: bool) -> str:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "system", "content": task.SYSTEM}, {"role": "user", "content": task.QUESTION}]
    for _ in range(task.MAX_TURNS):
        message = ask(client, messages, streamed)
        if not message.tool_calls:
            return message.content or ""
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}}
            for c in message.tool_calls
        ]
        messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
        for call in message.tool_calls:
            result = task.edit_file(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return ""


task.run(change)
