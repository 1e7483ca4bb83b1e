"""Reports about tool calls: a parser that is stricter than the model, and clients that see nothing for minutes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.field_reports.force import HI, TOOLS, Said, ask, ask_stream, call_text, force, tokens_of
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import ids, make_client, stream

READ = call_text("read_file", path="a.py")
READ_CALL = ("read_file", '{"path":"a.py"}')
PATH = "/v1/chat/completions"


# text around calls


@pytest.mark.parametrize(("text", "reasoning", "content", "n_calls"), [
    ("ok</think>I will look.\n" + READ, "ok", "I will look.", 1),
    ("ok\n</think>\n\nI will look.\n\n" + READ, "ok", "I will look.", 1),
    ("<think>ok</think>I will look.\n" + READ, "<think>ok", "I will look.", 1),  # the prompt has opened them already
    ("ok</think>A\n" + READ + "\nB\n" + READ, "ok", "A\nB", 2),
    ("ok</think>" + READ + READ + "\n\n" + READ, "ok", "", 3),
    ("ok</think>A" + READ + "\nDone.", "ok", "A\nDone.", 1),
    ("</think>" + READ, "", "", 1),
])  # fmt: skip
def test_text_before_between_and_after_calls(text: str, reasoning: str, content: str, n_calls: int) -> None:
    assert force(text) == Said(reasoning, content, [READ_CALL] * n_calls, "tool_calls")


@pytest.mark.parametrize("tail", ["<think>", "\n<think>", "\n<think>\n", "\n\n<think>\n\n", "\n<think>\n</think>\n",
                                  "\n</think>\n", "\n</think><think>"])  # fmt: skip
def test_a_stray_tag_at_the_end_costs_nothing(tail: str) -> None:
    assert force("ok</think>Look.\n" + READ + tail) == Said("ok", "Look.", [READ_CALL], "tool_calls")
    said = force("ok</think>answer" + tail)
    assert (said.content, said.calls, said.finish) == ("answer", [], "stop")


def test_thoughts_that_begin_again_are_thoughts() -> None:
    said = force("ok</think>Look.\n" + READ + "\n<think>\nand now")
    assert said == Said("ok\nand now", "Look.", [READ_CALL], "tool_calls")


# calls that are not quite right


@pytest.mark.parametrize("body", [
    "<parameter=path>\nx.py\n</parameter>\n</parameter>\n</function>\n</tool_call>",
    "<parameter=path>\nx.py\n</parameter>\n</parameter>\n</parameter>\n</function>\n</tool_call>",
    "<parameter=path>x.py</parameter></function></tool_call>",
    "<parameter=path>\nx.py</parameter>\n</function>\n</tool_call>",
    "<parameter=path>\nx.py\n</parameter>\n</tool_call>",
    "<parameter=path>\nx.py\n</parameter>\n</function>",
    "<parameter=path>\nx.py\n</parameter>",
    "<parameter=path>\nx.py\n</function>\n</tool_call>",
    "\n\n<parameter=path>\nx.py\n</parameter>\n\n\n</function>\n\n</tool_call>\n\n",
    "<parameter=path>\nx.py\n</parameter>\n</function>\n</tool_call></tool_call>",
])  # fmt: skip
def test_doubled_missing_and_glued_tags(body: str) -> None:
    said = force("ok</think><tool_call>\n<function=read_file>\n" + body)
    assert said == Said("ok", "", [("read_file", '{"path":"x.py"}')], "tool_calls")


def test_calls_arrive_as_the_model_wrote_them() -> None:
    """A missing or unknown parameter, or an unknown tool, is for the client to answer."""
    assert force("</think>" + call_text("write_file", path="x")).calls == [("write_file", '{"path":"x"}')]
    assert force("</think>" + call_text("write_file", other="y")).calls == [("write_file", '{"other":"y"}')]
    assert force("</think>" + call_text("read_file")).calls == [("read_file", "{}")]
    assert force("</think>" + call_text("no_such_tool", path="x")).calls == [("no_such_tool", '{"path":"x"}')]


def test_a_call_inside_thoughts_ends_them() -> None:
    for end in ("", "\n</think>", "\n</think>\n\n"):
        said = force("I need the file\n" + READ + end)
        assert said == Said("I need the file", "", [READ_CALL], "tool_calls")
    assert force(READ) == Said("", "", [READ_CALL], "tool_calls")


def test_a_quoted_tag_stays_in_the_thoughts() -> None:
    for quoted in ("<tool_call>", "`<tool_call>`", "<tool_call>\nsome", "<tool_call> <b>"):
        said = force(f"I could write {quoted} here.</think>Done.")
        assert said == Said(f"I could write {quoted} here.", "Done.", [], "stop")


def test_two_calls_with_tags_in_pieces() -> None:
    text = "</think>\n\n" + READ + "\n" + call_text("write_file", path="b", content="x < y </b>")
    said = force(text)
    assert said.calls == [READ_CALL, ("write_file", '{"path":"b","content":"x < y </b>"}')]
    assert said.content == "" and said.finish == "tool_calls"


# values


@pytest.mark.parametrize(("name", "text", "value"), [
    ("i", "-12", -12), ("i", "0", 0), ("n", "3.5e-7", 3.5e-7), ("n", "-0.5", -0.5), ("n", "7", 7), ("b", "true", True),
    ("b", "False", False), ("z", "null", None), ("a", '[1,{"a":null}]', [1, {"a": None}]), ("a", "[]", []),
    ("a", '[ -1, "x\\n", [] ]', [-1, "x\n", []]), ("o", '{"k": {"l": [true]}}', {"k": {"l": [True]}}),
    ("o", "{\n}", {}), ("i", "many", "many"), ("n", "-", "-"), ("a", "[1, 2", [1, 2]),
])  # fmt: skip
def test_values_have_the_type_that_the_schema_says(name: str, text: str, value: Any) -> None:
    (arguments,) = force("</think>" + call_text("typed", **{name: text})).arguments
    assert arguments == {name: value} and type(arguments[name]) is type(value)


@pytest.mark.parametrize("value", [
    "你好🙂\n  tab\t\"quoted\" \\ back", "", "\n\nx\n", "</parameter", "</function>", "<parameter=path>", "{\"a\": 1}",
    "<tool_call>\n<function=read_file>", "a </parameter> b", "null", "12", "<think>x</think>",
])  # fmt: skip
def test_strings_arrive_unchanged(value: str) -> None:
    text = "</think>" + call_text("write_file", path="p", content=value) + "\n" + READ
    said = force(text)
    assert said.arguments == [{"path": "p", "content": value}, {"path": "a.py"}] and said.content == ""


# limits and stop strings


def test_a_limit_anywhere_says_length_and_shows_no_tags() -> None:
    tokens = tokens_of("hm</think>Look.\n" + call_text("write_file", path="x.py", content="one\ntwo"))
    body = {"messages": HI, "tools": TOOLS}
    whole = '{"path":"x.py","content":"one\\ntwo"}'
    seen = set()
    for limit in range(1, len(tokens)):
        client = make_client(ScriptedEngine(Script(tokens, batch=5)))
        said = ask(client, {**body, "max_tokens": limit})
        assert said == ask_stream(client, {**body, "max_tokens": limit})
        assert said.finish == "length" and "Look.\n".startswith(said.content), said
        assert all(whole.startswith(arguments) for _, arguments in said.calls)
        seen |= {arguments for _, arguments in said.calls}
    assert len(seen) > 5, "the call is visible while it grows"


def test_a_stop_string_inside_a_call() -> None:
    tokens = tokens_of("</think>Look.\n" + call_text("write_file", path="x", content="one END two"))
    for batch in (1, 2, 5, 16):
        client = make_client(ScriptedEngine(Script(tokens, batch=batch)))
        response = client.post(PATH, data=json.dumps({"messages": HI, "tools": TOOLS, "stop": ["END"]}))
        (choice,) = response.get_json()["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["arguments"] == '{"path":"x","content":"one '
        assert choice["message"]["content"] == "Look." and "<" not in choice["message"]["content"]
        events = stream(client, PATH, {"messages": HI, "tools": TOOLS, "stop": ["END"]})
        deltas = [event["choices"][0]["delta"] for event in events[:-1]]
        pieces = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", [])]
        assert "".join(pieces) == call["function"]["arguments"]


# streaming


def test_a_long_string_streams_at_the_rate_of_its_tokens() -> None:
    value = "def f(x):\n    return x < 1 and \"<b>\" or '</b>'\n" * 300
    tokens = tokens_of("</think>" + call_text("write_file", path="x.py", content=value))
    assert len(tokens) > 4000
    client = make_client(ScriptedEngine(Script(tokens), n_ctx_slot=1 << 16))
    body = {"messages": HI, "tools": TOOLS, "timings_per_token": True}
    events = stream(client, PATH, body)
    at = [event["timings"]["predicted_n"] for event in events[:-1] if "timings" in event]
    gaps = [after - before for before, after in pairwise(at)]
    # tags between the two values are the longest that nothing can be said about
    assert sum(gap > 8 for gap in gaps) <= 4 and max(gaps) < 24, max(gaps)
    first = next(event for event in events if "tool_calls" in event["choices"][0]["delta"])
    opening = ids("</think><tool_call>\n<function=write_file>\n")
    assert first["timings"]["predicted_n"] <= len(opening)


def test_the_name_comes_as_soon_as_its_tag_is_closed() -> None:
    text = "</think><tool_call>\n<function=write_file>"
    engine = ScriptedEngine(Script(ids(text), batch=1))
    client = make_client(engine)
    events = stream(client, PATH, {"messages": HI, "tools": TOOLS, "max_tokens": len(ids(text))})
    calls = [event["choices"][0]["delta"].get("tool_calls") for event in events[:-1]]
    (start,) = [call for call in calls if call]
    assert start[0]["function"] == {"name": "write_file", "arguments": "{"}


@pytest.mark.parametrize("max_tokens", [1, 199, 200, 201, 4096])
def test_limits_of_requests_with_tools(max_tokens: int) -> None:
    tokens = tokens_of("</think>" + call_text("write_file", path="x", content="word " * 120))
    for streamed in (ask, ask_stream):
        said = streamed(make_client(ScriptedEngine(Script(tokens, batch=16))),
                        {"messages": HI, "tools": TOOLS, "max_tokens": max_tokens})  # fmt: skip
        assert said.finish == ("tool_calls" if max_tokens >= len(tokens) else "length")
