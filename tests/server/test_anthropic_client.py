"""Anthropic's own client against our server: answers, streams with thoughts and tool calls, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import serving
from tests.server.scripted import ids, make_service, said
from tests.server.test_chat import BATCHES, THOUGHT_AND_CALL
from tests.server.test_messages import HI, TOOLS

anthropic = pytest.importorskip("anthropic")


@pytest.fixture
def client(engine_url: str) -> Any:
    return anthropic.Anthropic(base_url=engine_url, api_key="none", max_retries=0, timeout=20)


def ask(client: Any, **fields: Any) -> Any:
    return client.messages.create(**{"model": "any", "max_tokens": 400, "messages": HI, **fields})


def test_whole_answer(client: Any) -> None:
    answer = ask(client)
    thought, text = answer.content
    assert (thought.type, thought.thinking, thought.signature) == ("thinking", "Thinking.", "")
    assert (text.type, text.text) == ("text", "Hello you")
    assert (answer.stop_reason, answer.usage.cache_read_input_tokens) == ("end_turn", 0)


@pytest.mark.parametrize("batch", BATCHES)
def test_streamed_thoughts_and_tool_calls(client: Any, engine: ScriptedEngine, batch: int) -> None:
    engine.say(said(THOUGHT_AND_CALL, batch=batch))
    with client.messages.stream(model="any", max_tokens=400, messages=HI, tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    thought, text, call = final.content
    assert (thought.thinking, text.text) == ("I should look it up.", "Let me see.")
    assert (call.name, call.input) == ("get_weather", {"city": "Paris", "days": 2})
    assert final.stop_reason == "tool_use"
    assert final.usage.output_tokens == engine.finished[engine.requests[0].id].timings.predicted_n


def test_a_conversation_with_a_tool(client: Any, engine: ScriptedEngine) -> None:
    engine.say(said(THOUGHT_AND_CALL), said("</think>\n\nIt rains."))
    first = ask(client, tools=TOOLS)
    call = first.content[-1]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": json.dumps(call.input)}
    history = [*HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = ask(client, tools=TOOLS, messages=history)
    assert [block.text for block in second.content] == ["It rains."] and second.stop_reason == "end_turn"
    prompt = list(engine.requests[1].prompt)
    assert prompt[: len(engine.requests[0].prompt)] == list(engine.requests[0].prompt)


def test_pings_do_not_disturb_it(client: Any, engine: ScriptedEngine) -> None:
    engine.say(said("</think>\n\nHello", prefill_delay=1.3))
    with serving(make_service(engine, sse_ping_interval=1)) as port:
        other = client.with_options(base_url=f"http://127.0.0.1:{port}")
        with other.messages.stream(model="any", max_tokens=400, messages=HI) as stream:
            assert "".join(stream.text_stream) == "Hello"


def test_counting(client: Any, engine: ScriptedEngine) -> None:
    n_tokens = client.messages.count_tokens(model="any", messages=HI).input_tokens
    ask(client)
    assert n_tokens == len(engine.requests[0].prompt)


def test_errors_are_the_clients_own_classes(client: Any, engine: ScriptedEngine) -> None:
    with pytest.raises(anthropic.BadRequestError, match="'max_tokens'"):
        ask(client, max_tokens=-5)
    with pytest.raises(anthropic.BadRequestError, match="exceeds the available context size"):
        ask(client, messages=[{"role": "user", "content": "word " * 5000}])
    engine.say(Script(ids("</think>\n\nHello you"), fail_after=2, fail_message="broken"))
    with pytest.raises(anthropic.APIError, match="broken"):
        list(ask(client, stream=True))


def test_keys() -> None:
    with serving(make_service(ScriptedEngine(said("x")), api_keys=["right"])) as port:
        url = f"http://127.0.0.1:{port}"
        assert ask(anthropic.Anthropic(base_url=url, api_key="right", max_retries=0)).content
        with pytest.raises(anthropic.AuthenticationError):
            ask(anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0))
