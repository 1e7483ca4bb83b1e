"""Reports about roles that a template refuses, and about details of the Messages and Responses APIs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.field_reports.force import CHAT, MESSAGES, RESPONSES, TOOLS, call_text
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, ids, make_client, post, said, tiny_tokenizer, typed_stream

USER = {"role": "user", "content": "Question"}
ANSWER = {"role": "assistant", "content": "Answer"}


def prompt(path: str, body: dict[str, Any]) -> str:
    engine = ScriptedEngine(said("x"))
    post(make_client(engine), path, {"max_tokens": 9, **body} if path == MESSAGES else body)
    return tiny_tokenizer().decode(engine.requests[0].prompt)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_late_system_message_stays_in_its_place(path: str, role: str) -> None:
    """Nothing in front of it changes, so what was computed for earlier turns stays valid."""
    late = {"role": role, "content": "Available agents: a, b"}
    history = [USER, ANSWER, late, {"role": "user", "content": "Next"}]
    key = "input" if path == RESPONSES else "messages"
    text = prompt(path, {key: history})
    before, _, after = text.partition("Available agents: a, b")
    assert before and "Question" in before and "Answer" in before and "Next" in after
    without = prompt(path, {key: [USER, ANSWER, {"role": "user", "content": "Next"}]})
    shared = before.removesuffix("<system>\n").removesuffix("<|im_start|>user\n")
    assert without.startswith(shared)
    longer = prompt(path, {key: [*history, ANSWER, {"role": "user", "content": "And?"}]})
    assert longer.startswith(text[: text.index("Next") + 4])


@pytest.mark.parametrize("messages", [
    [{"role": "developer", "content": "Rule"}, USER],
    [{"role": "system", "content": "Rule"}, {"role": "developer", "content": "Tabs"}, USER],
    [{"role": "developer", "content": "Rule"}, {"role": "system", "content": "Tabs"}, USER],
])  # fmt: skip
def test_developer_messages_are_one_system_message_with_the_others(messages: list[dict[str, str]]) -> None:
    for fields in ({}, {"tools": TOOLS}):
        text = prompt(CHAT, {"messages": messages, **fields})
        assert text.count("<|im_start|>system") == 1
        positions = [text.index(message["content"]) for message in messages]
        assert positions == sorted(positions)


def test_instructions_developer_and_tools_of_responses() -> None:
    flat = [{"type": "function", **entry["function"]} for entry in TOOLS]
    items = [{"role": "developer", "content": "Tabs"}, {"role": "user", "content": "Hi"}]
    text = prompt(RESPONSES, {"instructions": "Rule", "input": items, "tools": flat})
    assert text.count("<|im_start|>system") == 1 and text.index("Rule") < text.index("Tabs") < text.index("Hi")


@pytest.mark.parametrize(("output", "shown"), [
    ("done", "done"),
    ([{"type": "input_text", "text": "done"}], "done"),
    ([{"type": "output_text", "text": "done"}], "done"),
    ([{"type": "input_image", "image_url": "data:,"}], "an image, which this model cannot see"),
    ([{"type": "input_text", "text": "do"}, {"type": "input_image", "image_url": "x"}], "do"),
])  # fmt: skip
def test_outputs_of_functions(output: Any, shown: str) -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path":"a"}'},
        {"type": "function_call_output", "call_id": "c1", "output": output},
    ]
    text = prompt(RESPONSES, {"input": items})
    assert shown in text.partition("<tool_response>")[2]


@pytest.mark.parametrize("batch", [1, 2, 5, 16])
@pytest.mark.parametrize("limit", [None, 16])
def test_ids_and_states_of_a_responses_stream(batch: int, limit: int | None) -> None:
    text = "hm\n</think>\n\nLook.\n" + call_text("write_file", path="a.py", content="x = 1\n" * 20)
    engine = ScriptedEngine(Script([*ids(text), eos()], batch=batch))
    flat = [{"type": "function", **entry["function"]} for entry in TOOLS]
    fields = {} if limit is None else {"max_output_tokens": limit}
    events = typed_stream(make_client(engine), RESPONSES, {"input": "Hi", "tools": flat, **fields})
    final = events[-1]["response"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert done == final["output"]
    assert [item["id"] for item in added] == [item["id"] for item in done]
    assert [item.get("call_id") for item in added] == [item.get("call_id") for item in done]
    assert len({item["id"] for item in done}) == len(done)
    indices = [event["output_index"] for event in events if "output_index" in event]
    assert indices == sorted(indices)
    states = [item["status"] for item in done if "status" in item]
    assert states[-1] == ("completed" if limit is None else "incomplete")
    assert set(states[:-1]) <= {"completed"}
