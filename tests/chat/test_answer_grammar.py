"""Grammars of chats' answers: calls in the model's own form, with arguments of their schemas; thoughts are free."""

from __future__ import annotations

import json
import logging
from random import Random
from typing import Any

import pytest

from pyjet.chat import ChatOptions, ChatStreamParser, prepare_chat
from pyjet.chat.types import PreparedChat
from pyjet.grammar.description import Grammar, Mark
from tests.chat.test_families import SOURCES, TOOLS, USER, template
from tests.grammar.walk import accepts, walk

POINT = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 9}, "next": {"$ref": "#/$defs/point"}},
         "required": ["x"]}  # fmt: skip
DRAW = {
    "type": "function",
    "function": {
        "name": "draw",
        "parameters": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "color": {"enum": ["red", "dark blue"]},
                "at": {"$ref": "#/$defs/point"},
                "size": {"type": ["integer", "null"], "minimum": 0, "maximum": 99},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
            },
            "required": ["at", "title"],
            "$defs": {"point": POINT},
        },
    },
}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
THINKS, CALLS_IN_XML = ("qwen3.5", "qwen3", "qwq"), ("qwen3.5", "qwen3-coder")


def prepare(family: str, **fields: Any) -> PreparedChat:
    return prepare_chat({"messages": [USER], **fields}, template(family), ChatOptions())


def grammar(family: str, **fields: Any) -> Grammar:
    found = prepare(family, **fields).grammar
    assert found is not None
    return found


def xml(name: str, **parameters: str) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def in_json(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)}\n</tool_call>'


@pytest.mark.parametrize("family", SOURCES)
def test_free_answers_have_no_grammar(family: str) -> None:
    assert prepare(family).grammar is None
    assert prepare(family, tools=TOOLS, tool_choice="none").grammar is None


@pytest.mark.parametrize("family", SOURCES)
def test_a_call_that_is_left_to_the_model_is_constrained_once_it_begins(family: str) -> None:
    mark = grammar(family, tools=TOOLS).begins_behind
    tags = ("<tool_call>", "<function=") if family == "qwen3-coder" else ("<tool_call>",)
    thoughts = ("<think>", "</think>") if family in THINKS else None
    assert mark == Mark(tags, is_part=True, thoughts=thoughts, inside=family in ("qwen3.5", "qwq"))
    quiet = grammar(family, tools=TOOLS, chat_template_kwargs={"enable_thinking": False}).begins_behind
    assert quiet is not None and quiet.thoughts is None


@pytest.mark.parametrize("family", CALLS_IN_XML)
def test_calls_in_xml(family: str) -> None:
    lark = "start: calls\n" + grammar(family, tools=[DRAW, NOW]).lark.partition("\n")[2]
    good = xml("draw", at='{"x": 3, "next": {"x": 4}}', title="A\n<b> </parameter> é")
    for text in (
        good,
        xml("draw", title="", at='{"x":1}'),
        xml("draw", size="null", at='{"x":1}', color="dark blue", title="t", tags='["a", "b"]'),
        xml("now"),
        good + "\n" + xml("now") + "\n" + xml("now"),
    ):
        assert accepts(lark, text), text
    for text in (
        "",
        xml("other"),
        xml("draw", title="a required one is missing"),
        xml("draw", title="t", at='{"x":1}') + "\n",
        xml("draw", title="t", at='{"x":10}'),
        xml("draw", title="t", at='{"x":1}', size="100"),
        xml("draw", title="t", at='{"x":1}', color="blue"),
        xml("draw", title="t", at='{"x":1}', other="1"),
        xml("draw", title="t", at='{"x":1}', size="1").replace("</function>", xml("draw", size="2")[29:]),
        xml("now", x="1"),
        good + " " + good,
        good + "\nDone.",
    ):
        assert not accepts(lark, text), text
    bare = xml("now").removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    assert accepts(lark, bare) == (family == "qwen3-coder")


def test_calls_in_json() -> None:
    lark = "start: calls\n" + grammar("qwen2.5", tools=[DRAW, NOW]).lark.partition("\n")[2]
    good = in_json("draw", title="é", at={"x": 3, "next": {"x": 4}})
    for text in (good, in_json("now"), good + "\n" + in_json("now")):
        assert accepts(lark, text), text
    for text in (in_json("other"), in_json("draw", title="t"), in_json("now", x=1), good + "\n", good[:-1]):
        assert not accepts(lark, text), text


@pytest.mark.parametrize("family", SOURCES)
def test_one_call_without_parallel_calls(family: str) -> None:
    lark = "start: calls\n" + grammar(family, tools=[NOW], parallel_tool_calls=False).lark.partition("\n")[2]
    call = xml("now") if family in CALLS_IN_XML else in_json("now")
    assert accepts(lark, call) and not accepts(lark, call + "\n" + call)


@pytest.mark.parametrize("family", SOURCES)
def test_required_calls(family: str) -> None:
    """The call comes at once, behind thoughts if there are any."""
    call = xml("now") if family in CALLS_IN_XML else in_json("now")
    required = grammar(family, tools=[DRAW, NOW], tool_choice="required")
    opened = family in ("qwen3.5", "qwq")
    assert required.begins_behind == (Mark(("</think>",)) if opened else None)
    assert accepts(required.lark, call) and not accepts(required.lark, "Well, " + call)
    assert accepts(required.lark, "\n\n" + call) == opened
    assert accepts(required.lark, f"<think>\nhm {call[:12]}\n</think>\n\n{call}") == (family == "qwen3")
    named = {"type": "function", "function": {"name": "draw"}}
    assert not accepts(grammar(family, tools=[DRAW, NOW], tool_choice=named).lark, call)


@pytest.mark.parametrize("family", SOURCES)
def test_a_schema_behind_the_thoughts(family: str) -> None:
    answer = '{"answer": "<think>42"}'
    found = grammar(family, response_format={"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    opened = family in ("qwen3.5", "qwq")
    assert found.begins_behind == (Mark(("</think>",)) if opened else None)
    assert accepts(found.lark, answer) and accepts(found.lark, "\n\n" + answer) == opened
    assert accepts(found.lark, "<think>\nso\n</think>\n\n" + answer) == (family == "qwen3")
    quiet = grammar(family, json_schema=SCHEMA, chat_template_kwargs={"enable_thinking": False})
    assert quiet.begins_behind is None and not accepts(quiet.lark, "\n" + answer) and accepts(quiet.lark, answer)


def test_a_schema_beside_tools_is_the_other_answer() -> None:
    found = grammar("qwen2.5", tools=[NOW], json_schema=SCHEMA)
    assert found.begins_behind is None
    assert accepts(found.lark, '{"answer": ""}') and accepts(found.lark, in_json("now"))
    must = grammar("qwen2.5", tools=[NOW], json_schema=SCHEMA, tool_choice="required")
    assert not accepts(must.lark, '{"answer": ""}') and accepts(must.lark, in_json("now"))


def test_the_clients_grammar_begins_with_the_first_token() -> None:
    found = grammar("qwen3.5", grammar='root ::= "yes" | "no"')
    assert found.begins_behind is None and accepts(found.lark, "no")


def test_parameters_that_schemas_leave_open() -> None:
    schemas: list[Any] = [
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    ]
    for schema in schemas:
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        lark = "start: calls\n" + grammar("qwen3.5", tools=[tool]).lark.partition("\n")[2]
        assert accepts(lark, xml("f", a="1", zz="\n")) and accepts(lark, xml("f"))
    closed: list[Any] = [{}, None, {"type": "object"}, {"type": "object", "properties": {}}]
    for schema in closed:
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        lark = "start: calls\n" + grammar("qwen3.5", tools=[tool]).lark.partition("\n")[2]
        assert accepts(lark, xml("f")) and not accepts(lark, xml("f", a="1"))


def test_enums_at_odds_with_the_rest_of_their_schema() -> None:
    properties = {"a": {"const": "x", "enum": ["x", 1]}, "b": {"$ref": "#/$defs/text", "enum": ["x", 1]}}
    schema = {"type": "object", "properties": properties, "$defs": {"text": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    lark = "start: calls\n" + grammar("qwen3.5", tools=[tool]).lark.partition("\n")[2]
    assert accepts(lark, xml("f", a="x", b="x")) and not accepts(lark, xml("f", a="y"))


def test_very_many_parameters() -> None:
    names = [f"p{i}" for i in range(70)]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    lark = "start: calls\n" + grammar("qwen3.5", tools=[tool]).lark.partition("\n")[2]
    assert accepts(lark, xml("f", p3="1", p69="2")) and not accepts(lark, xml("f", p3="x"))


def test_what_a_tool_asks_for_in_vain_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    odd = {"a": {"type": "string", "pattern": "^(?!x)"}, "b": {"type": "hiccup"}, "c": {"type": "integer"}}
    tool = {"type": "function", "function": {"name": "odd", "parameters": {"type": "object", "properties": odd}}}
    with caplog.at_level(logging.WARNING, logger="pyjet.chat.call_grammar"):
        for _ in range(3):
            lark = "start: calls\n" + grammar("qwen2.5", tools=[tool, NOW]).lark.partition("\n")[2]
    assert [record.getMessage().partition(" cannot be used")[0] for record in caplog.records] == [
        "the schema of tool odd: #/properties/arguments/properties/a: the pattern '^(?!x)'",
        "the schema of tool odd: #/properties/arguments/properties/b: unrecognized type hiccup; "
        "any value is allowed there",
    ]
    assert accepts(lark, in_json("odd", a="x", b=[1], c=2)) and not accepts(lark, in_json("odd", c="2"))


@pytest.mark.parametrize("family", ["qwen3-coder", "qwen2.5"])
@pytest.mark.parametrize("seed", range(12))
def test_random_calls_parse_and_validate(family: str, seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    tools = [DRAW, NOW, *TOOLS]
    closer = "\n</parameter>\n" if family in CALLS_IN_XML else ""
    text = walk(grammar(family, tools=tools, tool_choice="required"), Random(seed), closer=closer)
    assert text is not None, "it did not end: another seed, or a larger limit"
    parser = ChatStreamParser(prepare(family, tools=tools, tool_choice="required"))
    parser.push(text)
    parser.finish(False)
    message = parser.message()
    assert message.tool_calls and not message.content
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    for call in message.tool_calls:
        jsonschema.Draft202012Validator(schemas[call.name]).validate(json.loads(call.arguments))
