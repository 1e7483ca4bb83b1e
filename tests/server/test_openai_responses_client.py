"""The official client's Responses API against our server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import ids, said
from tests.server.test_chat import BATCHES, THOUGHT_AND_CALL
from tests.server.test_responses import TOOLS

openai = pytest.importorskip("openai")


@pytest.fixture
def client(engine_url: str) -> Any:
    return openai.OpenAI(base_url=f"{engine_url}/v1", api_key="none", max_retries=0, timeout=20)


def ask(client: Any, **fields: Any) -> Any:
    return client.responses.create(**{"model": "any", "input": "Hi", **fields})


def test_whole_answer(client: Any) -> None:
    answer = ask(client)
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output_text == "Hello you" and answer.output[0].content[0].text == "Thinking."
    assert answer.usage.input_tokens_details.cached_tokens == 0


@pytest.mark.parametrize("batch", BATCHES)
def test_streamed_thoughts_and_tool_calls(client: Any, engine: ScriptedEngine, batch: int) -> None:
    engine.say(said(THOUGHT_AND_CALL, batch=batch))
    arguments = ""
    for event in ask(client, tools=TOOLS, stream=True):
        if event.type == "response.function_call_arguments.delta":
            arguments += event.delta
        if event.type == "response.completed":
            final = event.response
    assert json.loads(arguments) == {"city": "Paris", "days": 2}
    thought, message, call = final.output
    assert (thought.content[0].text, message.content[0].text) == ("I should look it up.", "Let me see.")
    assert (call.name, call.arguments) == ("get_weather", arguments)


@pytest.mark.parametrize("batch", BATCHES)
def test_the_clients_own_stream_helper_assembles_it(client: Any, engine: ScriptedEngine, batch: int) -> None:
    engine.say(said(THOUGHT_AND_CALL, batch=batch))
    with client.responses.stream(model="any", input="Hi", tools=TOOLS) as stream:
        texts = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert texts[-1] == "Let me see."
    assert final.output[-1].parsed_arguments == {"city": "Paris", "days": 2}


def test_a_conversation_with_a_tool(client: Any, engine: ScriptedEngine) -> None:
    engine.say(said(THOUGHT_AND_CALL), said("</think>\n\nIt rains."))
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    first = ask(client, input=history, tools=TOOLS)
    history += [item.to_dict() for item in first.output]
    history.append({"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "rain"})
    second = ask(client, input=history, tools=TOOLS)
    assert second.output_text == "It rains."
    prompt = list(engine.requests[1].prompt)
    assert prompt[: len(engine.requests[0].prompt)] == list(engine.requests[0].prompt)


def test_counting(client: Any, engine: ScriptedEngine) -> None:
    n_tokens = client.responses.input_tokens.count(model="any", input="Hi").input_tokens
    ask(client)
    assert n_tokens == len(engine.requests[0].prompt)


def test_errors_are_the_clients_own_classes(client: Any, engine: ScriptedEngine) -> None:
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        ask(client, previous_response_id="resp_1")
    engine.say(Script(ids("</think>\n\nHello you"), fail_after=2, fail_message="broken"))
    with pytest.raises(openai.APIError, match="broken"):
        list(ask(client, stream=True))
