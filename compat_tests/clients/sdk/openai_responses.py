"""OpenAI's SDK, Responses."""

from __future__ import annotations

import json
from typing import Any

import openai
import task

TOOL = {"type": "function", "name": task.NAME, "description": task.DESCRIPTION, "parameters": task.SCHEMA}


def ask(client: openai.OpenAI, items: list[Any], streamed: bool) -> Any:
    fields: dict[str, Any] = {
        "model": "pyjet-tiny", "instructions": task.SYSTEM, "input": items, "tools": [TOOL], "temperature": 0,
    }  # fmt: skip
    if not streamed:
        return client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        return stream.get_final_response()


def change(url: str, streamed: bool) -> str:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    items: list[Any] = [{"role": "user", "content": task.QUESTION}]
    for _ in range(task.MAX_TURNS):
        response = ask(client, items, streamed)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return str(response.output_text)
        for item in response.output:
            items.append(item.to_dict() if item.type != "function_call" else {
                "type": "function_call", "call_id": item.call_id, "name": item.name, "arguments": item.arguments,
            })  # fmt: skip
        for call in calls:
            result = task.edit_file(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    return ""


task.run(change)
