"""The official client against our server: answers, streams with reasoning and tool calls, errors."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import said
from tests.server.test_chat import BATCHES, HI, THOUGHT_AND_CALL, TOOLS


@pytest.fixture
def client(engine_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{engine_url}/v1", api_key="none", max_retries=0, timeout=20)


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model="any", messages=HI, **fields)  # type: ignore[call-overload]


def test_whole_answer(client: openai.OpenAI) -> None:
    answer = ask(client)
    message = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("Hello you", "Thinking.")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


@pytest.mark.parametrize("batch", BATCHES)
def test_streamed_reasoning_and_tool_calls(client: openai.OpenAI, engine: ScriptedEngine, batch: int) -> None:
    engine.say(said(THOUGHT_AND_CALL, batch=batch))
    reasoning = content = name = arguments = ""
    finish = usage = None
    for chunk in ask(client, tools=TOOLS, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
    assert reasoning == "I should look it up." and content == "Let me see."
    assert name == "get_weather" and json.loads(arguments) == {"city": "Paris", "days": 2}
    assert finish == "tool_calls"
    assert usage is not None and usage.completion_tokens == engine.finished[engine.requests[0].id].timings.predicted_n


def test_the_clients_own_stream_helper_assembles_the_call(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.say(said(THOUGHT_AND_CALL, batch=2))
    with client.chat.completions.stream(model="any", messages=HI, tools=TOOLS) as stream:  # type: ignore[arg-type]
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == {"city": "Paris", "days": 2}


def test_pings_do_not_disturb_it(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.say(said("</think>\n\nHello", prefill_delay=1.3))
    chunks = list(ask(client, stream=True, extra_body={"sse_ping_interval": 1}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"


def test_text_completion(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    engine.say(said("Hello you"))
    answer = client.completions.create(model="any", prompt="Once", max_tokens=50)
    assert answer.choices[0].text == "Hello you" and answer.choices[0].finish_reason == "stop"
    pieces = [chunk.choices[0].text for chunk in client.completions.create(model="any", prompt="Once", stream=True)]
    assert "".join(pieces) == "Hello you"


def test_errors_are_the_clients_own_classes(client: openai.OpenAI, engine: ScriptedEngine) -> None:
    with pytest.raises(openai.BadRequestError, match="'max_tokens'"):
        ask(client, max_tokens=-5)
    engine.say(Script([5, 6, 7], fail_after=2, fail_message="broken"))
    with pytest.raises(openai.APIError, match="broken"):
        list(ask(client, stream=True))


def test_logprobs(client: openai.OpenAI) -> None:
    answer = ask(client, logprobs=True, top_logprobs=2)
    entries = answer.choices[0].logprobs.content
    assert len(entries[0].top_logprobs) == 2 and isinstance(entries[0].logprob, float)
