"""A model that says exactly what a test wants, in every way in which a client may receive it.

The token ids are replayed by a scripted engine behind the real server and parser: by 1, 2, 5 and 16 tokens a step, as
the tokenizer splits the text and character by character (which splits every tag), streamed and whole, alone and beside
three others, on all three chat APIs.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from flask.testing import FlaskClient

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, events, ids, make_client

BATCHES = (1, 2, 5, 16)
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
HI = [{"role": "user", "content": "Hi"}]


@dataclass
class Said:
    """What arrived. ``calls`` are (name, arguments as text); ``finish`` is OpenAI's finish reason."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = ""

    @property
    def arguments(self) -> list[Any]:
        return [json.loads(arguments) for _, arguments in self.calls]


def tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}


STRING = {"type": "string"}
TOOLS = [
    tool("read_file", ("path",), path=STRING),
    tool("write_file", ("path", "content"), path=STRING, content=STRING),
    tool("typed", i={"type": "integer"}, n={"type": "number"}, b={"type": "boolean"}, z={"type": "null"},
         a={"type": "array"}, o={"type": "object"}),
]  # fmt: skip


def call_text(name: str, **parameters: str) -> str:
    """A call as Qwen3.5 writes it."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def tokens_of(text: str, *, by_characters: bool = False) -> list[int]:
    """The text's ids and the end token."""
    pieces = list(text) if by_characters else [text]
    return [*(token for piece in pieces for token in ids(piece)), eos()]


def force(text: str, body: dict[str, Any] | None = None, *, all_apis: bool = True, **options: Any) -> Said:
    """What a chat gets when the model says ``text``; fails unless it is the same in every way."""
    body = {"messages": HI, "tools": TOOLS, **(body or {})}
    engine = ScriptedEngine(Script([]))
    client = make_client(engine, **options)
    found: list[Said] = []
    for tokens in (tokens_of(text), tokens_of(text, by_characters=True)):
        for batch in BATCHES:
            engine.say(Script(tokens, batch=batch))
            found += [ask(client, body), ask_stream(client, body)]
    engine.say(Script(tokens_of(text, by_characters=True), batch=2, delay=0.0005))
    found += beside_three(client, body)
    for said in found:
        assert said == found[0], text
    if all_apis:
        check_other_apis(client, found[0])
    return found[0]


def beside_three(client: FlaskClient, body: dict[str, Any]) -> list[Said]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda streamed: (ask_stream if streamed else ask)(client, body), (1, 0, 1, 1)))


def check_other_apis(client: FlaskClient, chat: Said) -> None:
    """Messages and Responses deliver the same calls and the same text; they keep texts apart that chats join."""
    for said in (ask_messages(client), ask_responses(client)):
        assert (said.arguments, said.finish) == (chat.arguments, chat.finish)
        assert [name for name, _ in said.calls] == [name for name, _ in chat.calls]
        assert "".join(said.content.split()) == "".join(chat.content.split())
        assert "".join(said.reasoning.split()) == "".join(chat.reasoning.split())


# chats


def ask(client: FlaskClient, body: dict[str, Any]) -> Said:
    answer = post(client, CHAT, body)
    (choice,) = answer["choices"]
    message = choice["message"]
    calls = message.get("tool_calls", [])
    check_calls(calls, choice["finish_reason"])
    found = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return Said(message.get("reasoning_content", ""), message["content"], found, choice["finish_reason"])


def ask_stream(client: FlaskClient, body: dict[str, Any]) -> Said:
    response = client.post(CHAT, data=json.dumps({**body, "stream": True}))
    assert response.status_code == 200, response.get_data(as_text=True)
    return assembled(events(response.get_data()))


def assembled(payloads: list[Any]) -> Said:
    """The message that a client puts together, checking the order of the events on the way."""
    assert payloads[-1] == "[DONE]" and not any("error" in payload for payload in payloads[:-1])
    said, calls = Said(), []
    for payload in payloads[:-1]:
        for choice in payload["choices"]:
            assert not said.finish, "nothing follows the finish reason"
            delta = choice["delta"]
            said.reasoning += delta.get("reasoning_content") or ""
            said.content += delta.get("content") or ""
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(calls)
                    calls.append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
                else:
                    assert call["index"] == len(calls) - 1, "a call is complete before the next one begins"
                    calls[-1]["function"]["arguments"] += call["function"]["arguments"]
            said.finish = choice["finish_reason"] or ""
    check_calls(calls, said.finish)
    said.calls = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return said


def check_calls(calls: list[dict[str, Any]], finish: str) -> None:
    """Ids differ, and the arguments of calls that were not cut are JSON objects."""
    assert len({call["id"] for call in calls}) == len(calls) and all(call["id"] for call in calls)
    assert all(call["type"] == "function" and call["function"]["name"] for call in calls)
    if finish == "tool_calls":
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)


# the other two


def ask_messages(client: FlaskClient) -> Said:
    tools = [{"name": entry["function"]["name"], "input_schema": entry["function"]["parameters"]} for entry in TOOLS]
    answer = post(client, MESSAGES, {"messages": HI, "tools": tools, "max_tokens": 4000})
    said = Said(finish={"tool_use": "tool_calls", "end_turn": "stop", "max_tokens": "length"}[answer["stop_reason"]])
    for block in answer["content"]:
        said.reasoning += block.get("thinking", "")
        said.content += block.get("text", "")
        if block["type"] == "tool_use":
            said.calls.append((block["name"], json.dumps(block["input"])))
    return said


def ask_responses(client: FlaskClient) -> Said:
    tools = [{"type": "function", **entry["function"]} for entry in TOOLS]
    answer = post(client, RESPONSES, {"input": "Hi", "tools": tools})
    said = Said(finish="stop")
    for item in answer["output"]:
        if item["type"] == "function_call":
            said.calls.append((item["name"], item["arguments"]))
            said.finish = "tool_calls"
        elif item["type"] == "reasoning":
            said.reasoning += item["content"][0]["text"]
        else:
            said.content += item["content"][0]["text"]
    return said


def post(client: FlaskClient, path: str, body: dict[str, Any]) -> Any:
    response = client.post(path, data=json.dumps(body))
    assert response.status_code == 200, response.get_data(as_text=True)
    return response.get_json()
