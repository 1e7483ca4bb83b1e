"""/v1/messages: Anthropic's requests become chats, answers become content blocks, whole and as events."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from pyjet.server.billing_header import without_billing_header
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, ids, make_client, post, post_error, said, tiny_tokenizer, typed_stream
from tests.server.test_chat import BATCHES, THOUGHT_AND_CALL, call_text

PATH = "/v1/messages"
HI = [{"role": "user", "content": "Hi"}]
TOOLS = [
    {
        "name": "get_weather",
        "description": "Weather of a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    }
]
ANSWER = "Thinking.\n</think>\n\nHello you"
TWO_CALLS = "Both.\n</think>\n\n" + call_text("Paris", 2) + "\n" + call_text('R"ome\\', -3)


def ask(engine: ScriptedEngine, **fields: Any) -> Any:
    return post(make_client(engine), PATH, {"messages": HI, "max_tokens": 400, **fields})


def ask_stream(engine: ScriptedEngine, **fields: Any) -> list[dict[str, Any]]:
    return typed_stream(make_client(engine), PATH, {"messages": HI, "max_tokens": 400, **fields})


def prompt_of(engine: ScriptedEngine, number: int = -1) -> str:
    return tiny_tokenizer().decode(engine.requests[number].prompt)


def prompt(**fields: Any) -> str:
    engine = ScriptedEngine(said("x"))
    ask(engine, **fields)
    return prompt_of(engine)


def assembled(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content that a client puts together, by Anthropic's rules: one block is open at a time, in index order."""
    blocks: list[dict[str, Any]] = []
    open_index = None
    for event in events:
        if event["type"] == "content_block_start":
            assert open_index is None and event["index"] == len(blocks)
            open_index = event["index"]
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            assert event["index"] == open_index
            add_delta(blocks[-1], event["delta"])
        elif event["type"] == "content_block_stop":
            assert event["index"] == open_index
            open_index = None
    assert open_index is None
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return blocks


def add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    fields = {
        "thinking_delta": "thinking",
        "signature_delta": "signature",
        "text_delta": "text",
        "input_json_delta": "partial_json",
    }
    key = fields[delta["type"]]
    if key == "partial_json":
        block["json"] += delta[key]
    else:
        block[key] += delta[key]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """Types of events and of their deltas, repetitions left out."""
    names = [event["delta"]["type"] if event["type"] == "content_block_delta" else event["type"] for event in events]
    return [name for name, _ in groupby(names)]


# answers


def test_whole_answer() -> None:
    engine = ScriptedEngine(said(ANSWER, cached=3))
    answer = ask(engine)
    assert list(answer) == ["id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage"]
    assert answer["id"].startswith("chatcmpl-")
    assert answer["content"] == [
        {"type": "thinking", "thinking": "Thinking.", "signature": ""},
        {"type": "text", "text": "Hello you"},
    ]
    assert (answer["type"], answer["role"], answer["model"]) == ("message", "assistant", "tiny")
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", None)
    usage, n_prompt = answer["usage"], len(engine.requests[0].prompt)
    assert usage["cache_read_input_tokens"] == 3 and usage["input_tokens"] == n_prompt - 3
    assert usage["output_tokens"] == len(ids(ANSWER)) + 1


@pytest.mark.parametrize("batch", BATCHES)
def test_stream_order(batch: int) -> None:
    engine = ScriptedEngine(said(THOUGHT_AND_CALL, batch=batch, cached=2))
    events = ask_stream(engine, tools=TOOLS)
    block = ["content_block_start", "%s", "content_block_stop"]
    expected = ["message_start"]
    for name in ("thinking_delta", "text_delta", "input_json_delta"):
        expected += [part % name if "%" in part else part for part in block]
    expected.insert(expected.index("thinking_delta") + 1, "signature_delta")
    assert kinds(events) == [*expected, "message_delta", "message_stop"]
    start = events[0]["message"]
    assert (start["content"], start["stop_reason"], start["stop_sequence"]) == ([], None, None)
    n_prompt = len(engine.requests[0].prompt)
    assert start["usage"] == {"cache_read_input_tokens": 2, "input_tokens": n_prompt - 2, "output_tokens": 0}
    n_decoded = engine.finished[engine.requests[0].id].timings.predicted_n
    delta = {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2] == {"type": "message_delta", "delta": delta, "usage": {"output_tokens": n_decoded}}
    assert events[-1] == {"type": "message_stop"}


@pytest.mark.parametrize(
    "text", [ANSWER, THOUGHT_AND_CALL, TWO_CALLS, "</think>\n\n" + call_text("x", 1) + "\nand more"]
)
@pytest.mark.parametrize("batch", BATCHES)
def test_stream_and_whole_answer_have_the_same_blocks(text: str, batch: int) -> None:
    whole = ask(ScriptedEngine(said(text)), tools=TOOLS)
    events = ask_stream(ScriptedEngine(said(text, batch=batch)), tools=TOOLS)
    assert [{**block, "id": ""} for block in assembled(events)] == [{**block, "id": ""} for block in whole["content"]]
    assert events[-2]["delta"]["stop_reason"] == whole["stop_reason"]


def test_calls() -> None:
    answer = ask(ScriptedEngine(said(TWO_CALLS)), tools=TOOLS)
    thought, first, second = answer["content"]
    assert thought["thinking"] == "Both." and answer["stop_reason"] == "tool_use"
    assert list(first) == ["type", "id", "name", "input"] and first["id"] != second["id"]
    assert first["input"] == {"city": "Paris", "days": 2}
    assert second["input"] == {"city": 'R"ome\\', "days": -3}


def test_the_first_delta_of_a_call_opens_its_arguments() -> None:
    events = ask_stream(ScriptedEngine(said("</think>\n\n" + call_text("Paris", 2))), tools=TOOLS)
    start = next(event for event in events if event["type"] == "content_block_start")
    block = start["content_block"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "get_weather", {})
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert pieces[0] == "{" and "".join(pieces) == '{"city":"Paris","days":2}'


@pytest.mark.parametrize("n", [1, 5, 20, 25, 30])
def test_a_limit_is_told(n: int) -> None:
    text = "</think>\n\n" + call_text("Paris", 2)
    answer = ask(ScriptedEngine(Script([*ids(text), eos()])), tools=TOOLS, max_tokens=n)
    assert answer["stop_reason"] == "max_tokens" and answer["usage"]["output_tokens"] == n
    assert "<tool_call>" not in json.dumps(answer["content"])
    inputs = [block["input"] for block in answer["content"] if block["type"] == "tool_use"]
    assert all(value in ({}, {"city": "Paris", "days": 2}) for value in inputs), "whole or nothing"
    events = ask_stream(ScriptedEngine(Script([*ids(text), eos()])), tools=TOOLS, max_tokens=n)
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    starts = [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"]
    assert starts == [block["type"] for block in answer["content"]]


@pytest.mark.parametrize("batch", BATCHES)
def test_stop_sequences(batch: int) -> None:
    engine = ScriptedEngine(said("</think>\n\nOne two three", batch=batch))
    answer = ask(engine, stop_sequences=["three", "x"])
    assert answer["content"] == [{"type": "text", "text": "One two "}]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", "three")
    events = ask_stream(engine, stop_sequences=["three", "x"])
    assert assembled(events) == answer["content"]
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": "three"}


def test_message_start_comes_even_when_the_first_token_says_nothing() -> None:
    events = ask_stream(ScriptedEngine(said("🙂")), max_tokens=1)
    assert [event["type"] for event in events] == ["message_start", "message_delta", "message_stop"]


def test_max_tokens_has_a_default() -> None:
    engine = ScriptedEngine(said("x"))
    post(make_client(engine), PATH, {"messages": HI})
    assert engine.requests[0].max_tokens == 4096


def test_query_and_headers_of_claude_code() -> None:
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "a,b", "x-api-key": "key"}
    client = make_client(ScriptedEngine(said("x")), api_keys=["key"])
    body = json.dumps({"messages": HI, "max_tokens": 5})
    assert client.post(PATH + "?beta=true", data=body, headers=headers).status_code == 200
    assert client.post(PATH + "?beta=true", data=body).status_code == 401


def test_only_anthropics_fields_count() -> None:
    engine = ScriptedEngine(said("x"))
    ask(engine, seed=5, n_predict=3, n=2, temperature=0.5, top_k=7, top_p=0.5, metadata={"user_id": "u"})
    (request,) = engine.requests
    assert (request.sampling.seed, request.max_tokens) == (2**32 - 1, 400)
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.top_p) == (0.5, 7, 0.5)


def test_one_call_when_the_client_wants_no_parallel_ones() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    for events in (
        ask(ScriptedEngine(said(TWO_CALLS)), tools=TOOLS, tool_choice=choice)["content"],
        assembled(ask_stream(ScriptedEngine(said(TWO_CALLS)), tools=TOOLS, tool_choice=choice)),
    ):
        assert [block["input"] for block in events if block["type"] == "tool_use"] == [{"city": "Paris", "days": 2}]


def test_tool_choice_none_gives_text() -> None:
    text = "</think>\n\n" + call_text("Paris", 2)
    answer = ask(ScriptedEngine(said(text)), tools=TOOLS, tool_choice={"type": "none"})
    assert answer["content"] == [{"type": "text", "text": call_text("Paris", 2)}]


# requests


def test_system() -> None:
    plain = prompt(system="Be brief.")
    system = "<|im_start|>system\nBe brief.<|im_end|>\n"
    assert plain == system + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    blocks = [
        {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "brief."},
    ]
    assert prompt(system=blocks) == plain


def test_a_late_system_message_stays_where_it_is() -> None:
    messages = [*HI, {"role": "assistant", "content": "Yes"}, {"role": "system", "content": "Agents: a"}, *HI]
    text = prompt(messages=messages, system="Be brief.")
    assert text.index("Yes") < text.index("Agents: a") < text.rindex("Hi")


def test_history_of_a_tool_round() -> None:
    messages = [
        *HI,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I look it up.", "signature": "s"},
                {"type": "text", "text": "Wait."},
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Paris", "days": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "text", "text": "Go on."},
            ],
        },
    ]
    chat = [
        *HI,
        {
            "role": "assistant",
            "content": "Wait.",
            "reasoning_content": "I look it up.",
            "tool_calls": [
                {
                    "id": "t1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city":"Paris","days":2}'},
                }
            ],
        },
        {"role": "user", "content": "Go on."},
        {"role": "tool", "tool_call_id": "t1", "content": "rain"},
    ]
    tool = {**TOOLS[0]}
    tool["parameters"] = tool.pop("input_schema")
    engine = ScriptedEngine(said("x"))
    body = {"messages": chat, "tools": [{"type": "function", "function": tool}]}
    wanted = post(make_client(engine), "/apply-template", body)["prompt"]
    assert prompt(messages=messages, tools=TOOLS) == wanted
    assert "rain" in wanted and "<parameter=city>\nParis\n" in wanted


@pytest.mark.parametrize(
    "content", ["done", [{"type": "text", "text": "do"}, {"type": "text", "text": "ne"}], None, []]
)
def test_results_of_tools(content: Any) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
    call = {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {}}
    messages = [*HI, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    assert ("<tool_response>\ndone\n" in prompt(messages=messages)) == bool(content)


def test_thinking() -> None:
    assert prompt(thinking={"type": "disabled"}).endswith("<think>\n\n</think>\n\n")
    assert prompt(chat_template_kwargs={"enable_thinking": False}).endswith("<think>\n\n</think>\n\n")
    for thinking in ({"type": "adaptive"}, {}, None, "on"):
        assert prompt(thinking=thinking).endswith("<think>\n")


HEADER = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=%s;"


def test_the_billing_header_does_not_change_the_prompt() -> None:
    block = [{"type": "text", "text": HEADER % "36ee5"}, {"type": "text", "text": "You are a helper."}]
    other = [{"type": "text", "text": HEADER % "a0b1c"}, {"type": "text", "text": "You are a helper."}]
    assert prompt(system=block) == prompt(system=other) == prompt(system="You are a helper.")
    first, second = (prompt(system=HEADER % stamp + "You are a helper.") for stamp in ("36ee5", "a0b1c"))
    assert first == second and "cch=fffff;You are a helper." in first
    said_by_user = [{"role": "user", "content": HEADER % "36ee5"}]
    assert "cch=36ee5;" in prompt(messages=said_by_user)


@pytest.mark.parametrize(
    "text", ["", "You are x-anthropic-billing-header: cch=12345;", "x-anthropic-billing-header: no stamp", " " + HEADER]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_billing_header(text) == text


def test_count_tokens() -> None:
    engine = ScriptedEngine(said("x"))
    body = {"system": "Be brief.", "messages": HI, "tools": TOOLS}
    counted = post(make_client(engine), PATH + "/count_tokens", body)
    assert engine.requests == []
    ask(engine, **body)
    assert counted == {"input_tokens": len(engine.requests[0].prompt)}


# errors


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 500, "'messages' is required"),
        ([], 500, "'messages' is required"),
        (None, 500, "'messages' is required"),
        ({"messages": "hi"}, 400, "Expected 'messages' to be an array"),
        ({"messages": [{}]}, 400, "All non-assistant messages must contain 'content'"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "Expected 'content' to be a string or an array"),
        ({"messages": HI, "max_tokens": -5}, 400, "Field 'max_tokens'"),
        ({"messages": HI, "max_tokens": "x"}, 400, "Field 'max_tokens'"),
        ({"messages": HI, "temperature": []}, 400, "Field 'temperature'"),
        ({"messages": HI, "stop_sequences": [1]}, 400, "Field 'stop'"),
        ({"messages": HI, "tools": [{"name": 5}]}, 500, "Failed to parse tools"),
        (b"{bad", 400, "parse error at line 1, column 2"),
    ],
)
def test_errors(body: Any, status: int, message: str) -> None:
    engine = ScriptedEngine(said("x"))
    for path in (PATH, PATH + "/count_tokens"):
        if path.endswith("tokens") and "Field" in message:
            continue  # counting reads no other fields
        got, error = post_error(make_client(engine), path, body)
        assert (got, list(error)) == (status, ["code", "message", "type"])
        assert message in error["message"], error
    assert engine.requests == []


@pytest.mark.parametrize(
    "source", [{"type": "base64", "media_type": "image/png", "data": "AA=="}, {"type": "url", "url": "u"}]
)
def test_images_are_refused(source: dict[str, str]) -> None:
    image = {"type": "image", "source": source}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "see"}, image]}
    for content in ([image], [result]):
        body = {"messages": [{"role": "user", "content": content}]}
        status, error = post_error(make_client(ScriptedEngine(said("x"))), PATH, body)
        assert status == 500 and "image input is not supported" in error["message"]


def test_a_prompt_that_is_too_long_is_an_http_error() -> None:
    body = {"messages": [{"role": "user", "content": "word " * 5000}], "stream": True}
    status, error = post_error(make_client(ScriptedEngine(said("x"))), PATH, body)
    assert (status, error["type"]) == (400, "exceed_context_size_error")


def test_a_failure_inside_a_stream_is_an_error_event() -> None:
    tokens = ids("</think>\n\nHello you there")
    engine = ScriptedEngine(Script(tokens, fail_after=len(tokens) - 1, fail_message="broken"))
    response = make_client(engine).post(PATH, data=json.dumps({"messages": HI, "stream": True}))
    last = response.get_data(as_text=True).split("\n\n")[-2]
    assert last == 'event: error\ndata: {"code":500,"message":"broken","type":"server_error"}'
