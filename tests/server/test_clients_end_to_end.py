"""The official clients hold a conversation with a tool with pyjet-tiny, streamed and not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.live import serving
from tests.server.real import has_library, tiny_engine, tiny_service

pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "City name"}},
    "required": ["city"],
}
NAME, DESCRIPTION = "get_weather", "Get the current weather for a city"
QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
REPORT = json.dumps({"temperature": 21, "sky": "clear"})
WANTED = {"city": "Paris"}
GREEDY = {"temperature": 0}  # the client has no argument for it


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with tiny_engine() as engine, serving(tiny_service(engine)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("streamed", [False, True])
def test_anthropic(url: str, streamed: bool) -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=100)
    tools = [{"name": NAME, "description": DESCRIPTION, "input_schema": SCHEMA}]

    def ask(messages: list[Any]) -> Any:
        fields = {"model": "tiny", "max_tokens": 300, "messages": messages, "tools": tools, "extra_body": GREEDY}
        if not streamed:
            return client.messages.create(**fields)
        with client.messages.stream(**fields) as stream:
            return stream.get_final_message()

    first = ask([QUESTION])
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert (call.name, call.input, first.stop_reason) == (NAME, WANTED, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": REPORT}
    second = ask([QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}])
    assert second.stop_reason == "end_turn" and "21" in second.content[-1].text
    assert second.usage.cache_read_input_tokens > first.usage.input_tokens // 2


@pytest.mark.parametrize("streamed", [False, True])
def test_openai_responses(url: str, streamed: bool) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=100)
    tools = [{"type": "function", "name": NAME, "description": DESCRIPTION, "parameters": SCHEMA, "strict": True}]

    def ask(history: list[Any]) -> Any:
        fields = {"model": "tiny", "max_output_tokens": 300, "temperature": 0, "input": history, "tools": tools}
        if not streamed:
            return client.responses.create(**fields)
        with client.responses.stream(**fields) as stream:
            return stream.get_final_response()

    first = ask([QUESTION])
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == (NAME, WANTED)
    made = [{"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": REPORT}
    assert "21" in ask([QUESTION, *made, result]).output_text


@pytest.mark.parametrize("streamed", [False, True])
def test_openai_chat(url: str, streamed: bool) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=100)
    function = {"name": NAME, "description": DESCRIPTION, "parameters": SCHEMA}
    tools = [{"type": "function", "function": function}]

    def ask(messages: list[Any]) -> Any:
        fields = {"model": "tiny", "max_tokens": 300, "temperature": 0, "messages": messages, "tools": tools}
        if not streamed:
            return client.chat.completions.create(**fields).choices[0]
        with client.chat.completions.stream(**fields) as stream:
            return stream.get_final_completion().choices[0]

    first = ask([QUESTION])
    (call,) = first.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (NAME, WANTED)
    made = {"id": call.id, "type": "function", "function": {"name": NAME, "arguments": call.function.arguments}}
    history = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [made]}]
    second = ask([*history, {"role": "tool", "tool_call_id": call.id, "content": REPORT}])
    assert second.finish_reason == "stop" and "21" in second.message.content
