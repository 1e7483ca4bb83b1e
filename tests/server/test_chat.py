"""/v1/chat/completions: messages, tool calls, reasoning, events in order, usage, errors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pyjet.chat.builtin import BUILTIN_TEMPLATES
from pyjet.chat.template import ChatTemplate
from pyjet.server.app import create_app
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, ids, make_client, make_service, post, post_error, said, stream, tiny_template

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]


def call_text(city: str, days: int) -> str:
    return (
        f"<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n"
        f"<parameter=days>\n{days}\n</parameter>\n</function>\n</tool_call>"
    )


THOUGHT_AND_CALL = "I should look it up.\n</think>\n\nLet me see.\n\n" + call_text("Paris", 2)
BATCHES = [1, 2, 5, 16]


def chat(engine: ScriptedEngine, body: dict[str, Any], **options: Any) -> Any:
    return post(make_client(engine, **options), PATH, {"messages": HI, **body})


def chat_stream(engine: ScriptedEngine, body: dict[str, Any]) -> list[Any]:
    return stream(make_client(engine), PATH, {"messages": HI, **body})


def assembled(events: list[Any], index: int = 0) -> dict[str, Any]:
    """The message that a client puts together from a stream's deltas."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for event in events:
        for choice in event["choices"] if isinstance(event, dict) else []:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(message["tool_calls"]) and call["type"] == "function"
                    message["tool_calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                message["tool_calls"][call["index"]]["arguments"] += call["function"].get("arguments", "")
    return message


@pytest.mark.parametrize("path", ["/chat/completions", PATH])
def test_whole_answer(path: str) -> None:
    engine = ScriptedEngine(said("Thinking.\n</think>\n\nHello you"))
    answer = post(make_client(engine), path, {"messages": HI, "model": "other"})
    assert list(answer) == [
        "choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings",
    ]  # fmt: skip
    message = {"role": "assistant", "content": "Hello you", "reasoning_content": "Thinking."}
    assert answer["choices"] == [{"finish_reason": "stop", "index": 0, "message": message}]
    assert list(answer["choices"][0]) == ["finish_reason", "index", "message"]
    assert list(answer["choices"][0]["message"]) == list(message)
    assert (answer["object"], answer["model"]) == ("chat.completion", "tiny")
    assert isinstance(answer["created"], int)
    assert re.fullmatch(r"chatcmpl-[A-Za-z0-9]{32}", answer["id"])
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert engine.requests[0].prompt == tuple(ids(prompt))
    assert answer["usage"]["prompt_tokens"] == len(ids(prompt))
    assert answer["usage"]["completion_tokens"] == engine.finished[engine.requests[0].id].timings.predicted_n


def test_unfinished_thoughts_give_empty_content() -> None:
    answer = chat(ScriptedEngine(said("Still thinking about it")), {"max_tokens": 2})
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == "" and choice["message"]["reasoning_content"]
    assert answer["usage"]["completion_tokens"] == 2


def test_tool_call() -> None:
    (choice,) = chat(ScriptedEngine(said(THOUGHT_AND_CALL)), {"tools": TOOLS})["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert list(message) == ["role", "content", "reasoning_content", "tool_calls"]
    assert message["content"] == "Let me see." and message["reasoning_content"] == "I should look it up."
    (call,) = message["tool_calls"]
    assert list(call) == ["type", "function", "id"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city":"Paris","days":2}'}
    assert call["type"] == "function" and call["id"]


def test_a_call_without_text_has_empty_content() -> None:
    text = "</think>\n\n" + call_text("Paris", 2) + "\n" + call_text("Rome", 3)
    (choice,) = chat(ScriptedEngine(said(text)), {"tools": TOOLS})["choices"]
    assert choice["message"]["content"] == "" and "reasoning_content" not in choice["message"]
    calls = choice["message"]["tool_calls"]
    arguments = [json.loads(call["function"]["arguments"]) for call in calls]
    assert arguments == [{"city": "Paris", "days": 2}, {"city": "Rome", "days": 3}]
    assert calls[0]["id"] != calls[1]["id"]


def test_calls_are_text_with_tool_choice_none() -> None:
    text = "</think>\n\n" + call_text("Paris", 2)
    (choice,) = chat(ScriptedEngine(said(text)), {"tools": TOOLS, "tool_choice": "none"})["choices"]
    assert choice["message"]["content"] == call_text("Paris", 2) and choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("streamed", [False, True])
def test_one_call_without_parallel_calls(streamed: bool) -> None:
    text = "</think>\n\n" + call_text("Paris", 2) + "\n" + call_text("Rome", 3)
    engine = ScriptedEngine(said(text))
    body = {"tools": TOOLS, "parallel_tool_calls": False}
    if streamed:
        events = chat_stream(engine, body)
        calls = assembled(events)["tool_calls"]
        assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert json.loads(calls[0]["arguments"]) == {"city": "Paris", "days": 2}
    else:
        calls = chat(engine, body)["choices"][0]["message"]["tool_calls"]
    assert len(calls) == 1


@pytest.mark.parametrize("max_tokens", [1, 20, 30, 40, 199, 200, 201, 4096])
def test_a_truncated_call_is_visible_and_says_length(max_tokens: int) -> None:
    tokens = ids("</think>\n\n" + call_text("Paris", 2))
    engine = ScriptedEngine(Script([*tokens, eos()]))
    (choice,) = chat(engine, {"tools": TOOLS, "max_tokens": max_tokens})["choices"]
    finished = max_tokens > len(tokens)
    assert choice["finish_reason"] == ("tool_calls" if finished else "length")
    assert "<tool_call>" not in choice["message"]["content"]
    engine.say(Script([*tokens, eos()]))
    events = chat_stream(engine, {"tools": TOOLS, "max_tokens": max_tokens})
    assert events[-2]["choices"][0]["finish_reason"] == choice["finish_reason"]
    whole = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", [])]
    assert [call["arguments"] for call in assembled(events)["tool_calls"]] == whole


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("include_usage", [False, True])
def test_stream_order(batch: int, include_usage: bool) -> None:
    engine = ScriptedEngine(said(THOUGHT_AND_CALL, batch=batch))
    events = chat_stream(engine, {"tools": TOOLS, "stream_options": {"include_usage": include_usage}})
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    head = ["choices", "created", "id", "model", "system_fingerprint", "object"]
    assert all(list(chunk)[:6] == head for chunk in chunks)
    assert len({(chunk["id"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"
    role = {"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}}
    assert chunks[0]["choices"] == [role] and list(chunks[0]["choices"][0]) == list(role)
    last = chunks[-1]
    if include_usage:
        assert list(last) == [*head, "usage", "timings"] and last["choices"] == []
        n_prompt = len(engine.requests[0].prompt)
        assert last["usage"]["total_tokens"] == n_prompt + last["usage"]["completion_tokens"]
        assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        last = chunks[-2]
        assert list(last) == head
    else:
        assert list(last) == [*head, "timings"]
        assert all("usage" not in chunk for chunk in chunks)
    assert last["choices"] == [{"finish_reason": "tool_calls", "index": 0, "delta": {}}]
    message = assembled(chunks)
    assert message["reasoning_content"] == "I should look it up." and message["content"] == "Let me see."
    assert message["tool_calls"][0]["arguments"] == '{"city":"Paris","days":2}'


def test_first_delta_of_a_call() -> None:
    events = chat_stream(ScriptedEngine(said("</think>\n\n" + call_text("Paris", 2))), {"tools": TOOLS})
    calls = [
        event["choices"][0]["delta"]["tool_calls"]
        for event in events[:-1]
        if "tool_calls" in event["choices"][0]["delta"]
    ]
    assert all(len(entries) == 1 for entries in calls)
    first, *later = [entries[0] for entries in calls]
    assert list(first) == ["index", "id", "type", "function"]
    assert first["function"] == {"name": "get_weather", "arguments": "{"}
    assert all(list(call) == ["index", "function"] and list(call["function"]) == ["arguments"] for call in later)


def test_role_comes_with_the_first_token_even_inside_a_character() -> None:
    events = chat_stream(ScriptedEngine(said("🙂")), {"max_tokens": 1})
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert events[1]["choices"][0] == {"finish_reason": "length", "index": 0, "delta": {}}


@pytest.mark.parametrize("n", range(1, 16))
@pytest.mark.parametrize("streamed", [False, True])
def test_cut_inside_a_character_is_dropped(n: int, streamed: bool) -> None:
    text = "你好🙂你好🙂"
    engine = ScriptedEngine(said("</think>\n\n" + text))
    if streamed:
        content = assembled(chat_stream(engine, {"max_tokens": n}))["content"]
    else:
        content = chat(engine, {"max_tokens": n})["choices"][0]["message"]["content"]
    assert text.startswith(content)


@pytest.mark.parametrize("batch", BATCHES)
def test_stop_string_inside_reasoning_and_content(batch: int) -> None:
    text = "Thoughts here.\n</think>\n\nSome content."
    for stop, reasoning, content in (("here", "Thoughts", ""), ("cont", "Thoughts here.", "Some")):
        engine = ScriptedEngine(said(text, batch=batch))
        events = chat_stream(engine, {"stop": stop})
        message = assembled(events)
        assert (message["reasoning_content"].strip(), message["content"].strip()) == (reasoning, content)
        assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_several_choices() -> None:
    engine = ScriptedEngine(said("</think>\n\nOne"), said("</think>\n\nTwo"))
    answer = chat(engine, {"n": 2, "seed": 1})
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["One", "Two"]
    engine.say(said("</think>\n\nOne two three"), said("</think>\n\nTwo"))
    events = chat_stream(engine, {"n": 2, "stream_options": {"include_usage": True}})
    assert assembled(events, 0)["content"] == "One two three" and assembled(events, 1)["content"] == "Two"
    for index in (0, 1):
        mine = [e["choices"][0] for e in events[:-2] if e["choices"][0]["index"] == index]
        assert "role" in mine[0]["delta"] and mine[-1]["finish_reason"] == "stop"
    assert [event for event in events if event != "[DONE]" and "usage" in event] == [events[-2]]


def test_logprobs() -> None:
    engine = ScriptedEngine(said("</think>\n\nHello you"))
    (choice,) = chat(engine, {"logprobs": True, "top_logprobs": 3})["choices"]
    entries = choice["logprobs"]["content"]
    assert len(entries[0]["top_logprobs"]) == 3 and engine.requests[0].n_probs == 3
    (choice,) = chat(ScriptedEngine(said("</think>\n\nHello")), {"logprobs": False})["choices"]
    assert "logprobs" not in choice
    engine.say(said("</think>\n\nHello you"))
    events = chat_stream(engine, {"logprobs": True})
    assert engine.requests[-1].n_probs == 20
    with_text = [e["choices"][0] for e in events[:-1] if "content" in e["choices"][0]["delta"]][1:]
    for choice in with_text:
        (entry,) = choice["logprobs"]["content"]
        assert len(entry["top_logprobs"]) == 20


def test_progress_timings_and_verbose() -> None:
    engine = ScriptedEngine(said("</think>\n\nHello", progress=[0, 5]))
    body = {"return_progress": True, "timings_per_token": True, "verbose": True}
    events = chat_stream(engine, body)
    for event, processed in zip(events[:2], (0, 5)):
        assert event["choices"][0]["delta"] == {"role": "assistant", "content": None}
        assert event["prompt_progress"]["processed"] == processed
    assert "timings" in events[2]
    finish = events[-2]
    assert list(finish)[-2:] == ["timings", "__verbose"]
    assert finish["__verbose"]["prompt"].startswith("<|im_start|>user") and "timings" in finish
    engine.say(said("</think>\n\nHello"))
    answer = chat(engine, {"verbose": True})
    settings = answer["__verbose"]["generation_settings"]
    assert settings["reasoning_format"] == "deepseek" and settings["chat_format"] == "peg-native"
    assert answer["__verbose"]["content"] == "</think>\n\nHello"
    assert settings["generation_prompt"].endswith("<think>\n")


def test_prefill() -> None:
    messages = [*HI, {"role": "assistant", "content": "It is "}]
    engine = ScriptedEngine(said("sunny"))
    assert chat(engine, {"messages": messages})["choices"][0]["message"]["content"] == "It is sunny"
    assert assembled(chat_stream(engine, {"messages": messages}))["content"] == "It is sunny"
    hidden = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    assert assembled(chat_stream(engine, hidden))["content"] == "sunny"
    assert assembled(chat_stream(engine, {**hidden, "echo": True}))["content"] == "It is sunny"
    assert chat(engine, hidden)["choices"][0]["message"]["content"] == "It is sunny"


def test_reasoning_stays_in_content_on_request() -> None:
    engine = ScriptedEngine(said("ab</think>\n\ncd"))
    message = chat(engine, {"reasoning_format": "none"})["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "<think>\nab</think>\n\ncd"}


def test_n_predict_wins_over_max_tokens() -> None:
    engine = ScriptedEngine(said("one two three four"))
    chat(engine, {"max_tokens": 3, "n_predict": 2})
    assert engine.requests[0].max_tokens == 2


def test_input_tokens() -> None:
    engine = ScriptedEngine(said("x"))
    prompt = tiny_template().render(HI)
    for prefix in ("", "/v1"):
        answer = post(make_client(engine), f"{prefix}/chat/completions/input_tokens", {"messages": HI})
        assert answer == {"input_tokens": len(ids(prompt)), "object": "response.input_tokens"}
    assert engine.requests == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ([], 400),
        (None, 400),
        ({"messages": "hi"}, 400),
        ({"messages": [{}]}, 400),
        ({"messages": [{"role": 1}]}, 400),
        ({"messages": HI, "temperature": "hot"}, 400),
        ({"messages": HI, "max_tokens": -5}, 400),
        ({"messages": HI, "n": 0}, 400),
        ({"messages": HI, "top_logprobs": 2}, 400),
        ({"messages": HI, "logprobs": "x"}, 400),
        ({"messages": HI, "logprobs": True, "tools": TOOLS, "stream": True}, 400),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400),
        (b'{"messages": [], "temperature": NaN}', 400),
        (b"{bad", 400),
        (b"", 400),
        ({"messages": HI, "tools": {}}, 500),
        ({"messages": HI, "reasoning_format": "x"}, 500),
    ],
)
def test_bad_requests(body: Any, status: int) -> None:
    engine = ScriptedEngine(said("x"))
    got, error = post_error(make_client(engine), PATH, body)
    assert (got, error["code"]) == (status, status), error
    assert error["type"] == ("invalid_request_error" if status == 400 else "server_error")
    assert engine.requests == []


def test_ignored_fields_and_nulls() -> None:
    body = {
        "user": "me", "metadata": {}, "store": True, "functions": [], "tools": None, "stop": None, "seed": None,
        "response_format": None, "tool_choice": None, "response_format_": 1, "service_tier": "auto",
    }  # fmt: skip
    assert chat(ScriptedEngine(said("</think>\n\nok")), body)["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize("streamed", [False, True])
def test_overlong_prompt(streamed: bool) -> None:
    engine = ScriptedEngine(said("x"), n_ctx_slot=8)
    status, error = post_error(make_client(engine), PATH, {"messages": HI, "stream": streamed})
    assert (status, error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", 8)


def test_large_unicode_arguments_stay_whole() -> None:
    city = "".join(chr(0x4E00 + n % 300) + "🙂" for n in range(400))
    engine = ScriptedEngine(said("</think>\n\n" + call_text(city, 1), batch=16))
    events = chat_stream(engine, {"tools": TOOLS})
    (call,) = assembled(events)["tool_calls"]
    assert json.loads(call["arguments"]) == {"city": city, "days": 1}


def test_calls_in_an_unknown_form_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = ScriptedEngine(said("</think>\n\n" + call_text("Paris", 2)))
    service = make_service(engine)
    service.chat_template = ChatTemplate(BUILTIN_TEMPLATES["chatml"])
    client = create_app(service, service.options).test_client()
    for body in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS}, {"tools": TOOLS}):
        answer = post(client, PATH, {"messages": HI, **body})
        assert call_text("Paris", 2) in answer["choices"][0]["message"]["content"]
    assert [record.levelname for record in caplog.records if "form of tool calls" in record.message] == ["WARNING"]
