"""/v1/responses: items become a chat, an answer becomes output items, whole and as events."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

import pytest

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, ids, make_client, post, post_error, said, tiny_tokenizer, typed_stream
from tests.server.test_chat import BATCHES, THOUGHT_AND_CALL, call_text

PATH = "/v1/responses"
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
        "strict": True,
    }
]
ANSWER = "Thinking.\n</think>\n\nHello you"
TWO_CALLS = "Both.\n</think>\n\n" + call_text("Paris", 2) + "\n" + call_text('R"ome\\', -3)


def ask(engine: ScriptedEngine, **fields: Any) -> Any:
    return post(make_client(engine), PATH, {"input": "Hi", **fields})


def ask_stream(engine: ScriptedEngine, **fields: Any) -> list[dict[str, Any]]:
    return typed_stream(make_client(engine), PATH, {"input": "Hi", **fields})


def prompt(**fields: Any) -> str:
    engine = ScriptedEngine(said("x"))
    ask(engine, **fields)
    return tiny_tokenizer().decode(engine.requests[0].prompt)


def chat_prompt(messages: list[dict[str, Any]], **fields: Any) -> str:
    body = {"messages": messages, **fields}
    return str(post(make_client(ScriptedEngine(said("x"))), "/apply-template", body)["prompt"])


def without_ids(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in item.items() if key not in ("id", "call_id")} for item in items]


# answers


@pytest.mark.parametrize("path", ["/responses", PATH])
def test_whole_answer(path: str) -> None:
    engine = ScriptedEngine(said(ANSWER, cached=3))
    answer = post(make_client(engine), path, {"input": "Hi", "model": "other"})
    keys = "completed_at created_at id model object output status usage"
    assert list(answer) == keys.split()
    assert re.fullmatch(r"resp_[A-Za-z0-9]{32}", answer["id"])
    assert (answer["object"], answer["status"], answer["model"]) == ("response", "completed", "tiny")
    thought, message = answer["output"]
    assert thought["id"].startswith("rs_") and message["id"].startswith("msg_")
    assert without_ids([thought]) == [
        {
            "summary": [],
            "type": "reasoning",
            "content": [{"text": "Thinking.", "type": "reasoning_text"}],
            "encrypted_content": "",
            "status": "completed",
        }
    ]
    text = {"type": "output_text", "annotations": [], "logprobs": [], "text": "Hello you"}
    assert without_ids([message]) == [
        {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
    ]
    n_prompt, n_decoded = len(engine.requests[0].prompt), len(ids(ANSWER)) + 1
    assert answer["usage"] == {
        "input_tokens": n_prompt,
        "output_tokens": n_decoded,
        "total_tokens": n_prompt + n_decoded,
        "input_tokens_details": {"cached_tokens": 3},
    }


def test_calls() -> None:
    _, first, second = ask(ScriptedEngine(said(TWO_CALLS)), tools=TOOLS)["output"]
    for call in (first, second):
        assert set(call) == {"id", "type", "status", "arguments", "call_id", "name"}
        assert call["id"].removeprefix("fc_") == call["call_id"].removeprefix("call_") and len(call["id"]) == 35
    assert json.loads(first["arguments"]) == {"city": "Paris", "days": 2}
    assert json.loads(second["arguments"]) == {"city": 'R"ome\\', "days": -3}
    assert first["id"] != second["id"]


@pytest.mark.parametrize("batch", BATCHES)
def test_stream_order(batch: int) -> None:
    events = ask_stream(ScriptedEngine(said(THOUGHT_AND_CALL, batch=batch)), tools=TOOLS)
    names = [name.removeprefix("response.") for name, _ in groupby(event["type"] for event in events)]
    thoughts = "output_item.added reasoning_text.delta reasoning_text.done output_item.done"
    text = "content_part.added output_text.delta output_text.done content_part.done"
    call = "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done"
    assert names == f"created in_progress {thoughts} output_item.added {text} output_item.done {call} completed".split()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    indices = [event["output_index"] for event in events if "output_index" in event]
    assert indices == sorted(indices) and set(indices) == {0, 1, 2}
    first = events[0]["response"]
    assert (first["object"], first["status"], first["output"]) == ("response", "in_progress", [])
    assert {event["response"]["id"] for event in (events[0], events[1], events[-1])} == {first["id"]}


@pytest.mark.parametrize("text", [ANSWER, THOUGHT_AND_CALL, TWO_CALLS, "</think>\n\nHello"])
@pytest.mark.parametrize("batch", BATCHES)
def test_deltas_add_up_to_the_items(text: str, batch: int) -> None:
    events = ask_stream(ScriptedEngine(said(text, batch=batch)), tools=TOOLS)
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert items == events[-1]["response"]["output"]
    assert without_ids(items) == without_ids(ask(ScriptedEngine(said(text)), tools=TOOLS)["output"])
    for index, item in enumerate(items):
        mine = [event for event in events if event.get("output_index") == index]
        added = mine[0]["item"]
        assert (added["id"], added["type"], added["status"]) == (item["id"], item["type"], "in_progress")
        assert not added.get("content") and not added.get("arguments")
        assert {event["item_id"] for event in mine if "item_id" in event} == {item["id"]}
        text_of_deltas = "".join(event["delta"] for event in mine if event["type"].endswith(".delta"))
        whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert text_of_deltas == whole
        if item["type"] == "function_call":
            json.loads(whole)
            assert added["call_id"] == item["call_id"] and added["name"] == "get_weather"


def test_the_first_delta_of_a_call_opens_its_arguments() -> None:
    events = ask_stream(ScriptedEngine(said("</think>\n\n" + call_text("Paris", 2))), tools=TOOLS)
    deltas = [event for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert deltas[0]["delta"] == "{"


@pytest.mark.parametrize(
    "text", ["Thinking about it for long", "</think>\n\nHello you there", "</think>\n\n" + call_text("Paris", 2)]
)
def test_an_item_that_a_limit_cut_is_incomplete(text: str) -> None:
    limit = len(ids(text)) - 1 if "<tool_call>" not in text else 20
    engine = ScriptedEngine(Script([*ids(text), eos()]))
    answer = ask(engine, tools=TOOLS, max_output_tokens=limit)
    assert [item["status"] for item in answer["output"]] == ["incomplete"]
    assert answer["status"] == "completed" and answer["incomplete_details"] == {"reason": "max_output_tokens"}
    events = ask_stream(engine, tools=TOOLS, max_output_tokens=limit)
    assert events[-1]["type"] == "response.completed"
    assert [e["item"]["status"] for e in events if e["type"] == "response.output_item.done"] == ["incomplete"]
    assert without_ids(events[-1]["response"]["output"]) == without_ids(answer["output"])


def test_progress_and_timings() -> None:
    events = ask_stream(
        ScriptedEngine(said("</think>\n\nHello", progress=[0, 5])), return_progress=True, timings_per_token=True
    )
    assert [event["type"] for event in events[:3]] == ["response.created", *["response.in_progress"] * 2]
    assert [event["prompt_progress"]["processed"] for event in events[1:3]] == [0, 5]
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert all("predicted_per_second" in event["timings"] for event in deltas)
    assert "timings" in events[-1] and "timings" not in events[-1]["response"]


def test_one_call_when_the_client_wants_no_parallel_ones() -> None:
    items = ask(ScriptedEngine(said(TWO_CALLS)), tools=TOOLS, parallel_tool_calls=False)["output"]
    assert [item["type"] for item in items] == ["reasoning", "function_call"]


def test_fields_that_pass_through() -> None:
    engine = ScriptedEngine(said("x"))
    ask(engine, seed=5, max_output_tokens=7, temperature=0.5, n=2, store=False, include=[], reasoning=None, text=None)
    (request,) = engine.requests
    assert (request.sampling.seed, request.max_tokens, request.sampling.temperature) == (5, 7, 0.5)


def test_a_failure_inside_a_stream() -> None:
    tokens = ids("</think>\n\nHello you there")
    engine = ScriptedEngine(Script(tokens, fail_after=len(tokens) - 1, fail_message="broken"))
    response = make_client(engine).post(PATH, data=json.dumps({"input": "Hi", "stream": True}))
    last = response.get_data(as_text=True).split("\n\n")[-2]
    assert last == 'data: {"error":{"code":500,"message":"broken","type":"server_error"}}'


# requests


def test_a_text_and_instructions() -> None:
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    assert prompt(instructions="Be brief.") == chat_prompt([system, user])
    assert prompt(instructions=None) == prompt(instructions="") == chat_prompt([user])


def test_developer_and_instructions_are_one_system_message() -> None:
    items = [
        {"role": "developer", "content": "Use tabs."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    ]
    text = prompt(instructions="Be brief.", input=items, tools=TOOLS)
    assert text.count("<|im_start|>system") == 1 and text.index("Be brief.") < text.index("Use tabs.")


ROUND = [
    {"type": "message", "role": "user", "content": "Weather?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I look."}]},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Wait."}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "get_weather",
        "arguments": '{"city":"Paris"}',
    },
    {"type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "get_weather", "arguments": '{"city":"Rome"}'},
]


def call(number: int, city: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"id": f"call_{number}", "type": "function", "function": function}


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("rain", "rain"),
        ([{"type": "input_text", "text": "rain"}], "rain"),
        ([{"type": "output_text", "text": "ra"}, {"type": "input_text", "text": "in"}], "rain"),
        ([{"type": "input_image", "image_url": "u"}], "[an image, which this model cannot see]"),
    ],
)
def test_a_round_of_tools(output: Any, text: str) -> None:
    results = [{"type": "function_call_output", "call_id": f"call_{n}", "output": output} for n in (1, 2)]
    chat = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Wait.",
            "reasoning_content": "I look.",
            "tool_calls": [call(1, "Paris"), call(2, "Rome")],
        },
        *[{"role": "tool", "tool_call_id": f"call_{n}", "content": text} for n in (1, 2)],
    ]
    tools = [{"type": "function", "function": {key: value for key, value in TOOLS[0].items() if key != "type"}}]
    assert prompt(input=[*ROUND, *results], tools=TOOLS) == chat_prompt(chat, tools=tools)


def test_an_answer_can_be_sent_back_as_it_is() -> None:
    output = ask(ScriptedEngine(said(THOUGHT_AND_CALL)), tools=TOOLS)["output"]
    (made,) = [item for item in output if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "rain"}
    text = prompt(input=[{"role": "user", "content": "Hi"}, *output, result], tools=TOOLS)
    assert "I should look it up.\n</think>\n\nLet me see.\n\n" + call_text("Paris", 2) in text


def test_thoughts_without_text_and_messages_without_a_type() -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x"},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "Hi"},
    ]
    chat = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "Hi"},
    ]
    assert prompt(input=items) == chat_prompt(chat)


def test_tools_of_other_kinds_are_left_out() -> None:
    text = prompt(tools=[{"type": "web_search"}, *TOOLS], tool_choice={"type": "allowed_tools", "tools": []})
    assert "web_search" not in text and "get_weather" in text
    assert prompt(tools=[{"type": "web_search"}]) == prompt()


def test_effort_reaches_the_template() -> None:
    assert prompt(reasoning={"effort": "none"}).endswith("<think>\n\n</think>\n\n")
    assert prompt(reasoning={"effort": "low", "summary": "auto"}).endswith("<think>\n")


def test_input_tokens() -> None:
    n_tokens = len(ids(prompt(instructions="Be brief.")))
    engine = ScriptedEngine(said("x"))
    for prefix in ("", "/v1"):
        answer = post(
            make_client(engine), f"{prefix}/responses/input_tokens", {"input": "Hi", "instructions": "Be brief."}
        )
        assert answer == {"input_tokens": n_tokens, "object": "response.input_tokens"}
    assert engine.requests == []


# errors


def user(content: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "'input' is required"),
        ([], 400, "'input' is required"),
        ({"input": 5}, 400, "'input' must be a string or array of objects"),
        ({"input": "Hi", "previous_response_id": "resp_1"}, 400, "llama.cpp does not support 'previous_response_id'."),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 400, "Cannot determine type of 'item'"),
        ({"input": [5]}, 400, "Cannot determine type of 'item'"),
        ({"input": [{"type": "function_call", "name": "f"}]}, 400, "Cannot determine type of 'item'"),
        ({"input": "Hi", "tools": {}}, 400, "'tools' must be an array of objects"),
        (user([{"type": "input_file"}]), 400, "'input_file' is not supported by llamacpp at this moment"),
        (user([{"type": "x"}]), 400, "'type' must be one of 'input_text', 'input_image', or 'input_file'"),
        (user([{"type": "input_text"}]), 400, "'Input text' requires 'text'"),
        (user([{"type": "input_image"}]), 400, "'image_url' is required"),
        (user([{"type": "input_image", "image_url": "u"}]), 500, "image input is not supported"),
        ({"input": "Hi", "max_output_tokens": -5}, 400, "Field 'max_tokens'"),
        ({"input": "Hi", "tool_choice": {"type": "function", "name": "f"}}, 400, "unknown function 'f'"),
        ({"input": "Hi", "tool_choice": "x"}, 400, "Invalid tool_choice: x"),
        (
            {"input": "Hi", "text": {"format": {"type": "json_schema", "schema": {"type": "hiccup"}}}},
            400,
            "JSON schema error at #: unrecognized type hiccup",
        ),
        (b"{bad", 400, "parse error at line 1, column 2"),
    ],
)
def test_errors(body: Any, status: int, message: str) -> None:
    engine = ScriptedEngine(said("x"))
    got, error = post_error(make_client(engine), PATH, body)
    assert got == status and message in error["message"] and error["code"] == status, error
    assert engine.requests == []
