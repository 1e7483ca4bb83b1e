"""Answers of Qwen3.5-style and Hermes-style models, whole and in pieces, right and wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.chat import ChatOptions, ChatStreamParser, ChatTemplate, Delta, PreparedChat, prepare_chat
from pyjet.chat.schema_types import parameter_types

PIECES = (1, 2, 5, 16, 1 << 20)


def tool(name: str, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": {
        "type": "object", "properties": properties, "required": list(required)}}}


STRING = {"type": "string"}
TOOLS = [
    tool("read_file", ("path",), path=STRING),
    tool("write_file", ("path", "content"), path=STRING, content=STRING),
    tool("f", i={"type": "integer"}, n={"type": "number"}, b={"type": "boolean"}, z={"type": "null"},
         a={"type": "array"}, o={"type": "object"}, sn={"type": ["string", "null"]},
         so={"anyOf": [STRING, {"type": "object"}]}, any={}, e={"enum": [1, 2]}, c={"const": "x"}),
]


def prepared(**fields: Any) -> PreparedChat:
    """A chat whose prompt ends with an open `<think>`."""
    defaults: dict[str, Any] = dict(
        prompt="", format="qwen_xml", parse_prefix="<think>\n", supports_thinking=True, enable_thinking=True,
        extract_reasoning=True, skip_leading_space=True, tools=TOOLS, parse_tools=True)
    return PreparedChat(**{**defaults, **fields})


@dataclass
class Answer:
    reasoning: str
    content: str
    calls: list[tuple[str, str]]
    deltas: list[Delta]


def parse(text: str, size: int, chat: PreparedChat, truncated: bool = False) -> Answer:
    numbers = count()
    parser = ChatStreamParser(chat, lambda: f"id{next(numbers)}")
    deltas: list[Delta] = []
    for start in range(0, len(text), size):
        deltas += parser.push(text[start:start + size])
    deltas += parser.finish(truncated)
    message = parser.message()
    check_deltas(deltas, message.to_openai())
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return Answer(message.reasoning_content, message.content, calls, deltas)


def check_deltas(deltas: list[Delta], message: dict[str, Any]) -> None:
    """Deltas add up to the message, and each call is announced before its arguments."""
    assert "".join(d.text for d in deltas if d.kind == "content") == message["content"]
    assert "".join(d.text for d in deltas if d.kind == "reasoning") == message.get("reasoning_content", "")
    assert all(d.text for d in deltas)
    for index, call in enumerate(message.get("tool_calls", [])):
        own = [d for d in deltas if d.kind in ("tool_start", "tool_args") and d.index == index]
        assert own[0] == Delta("tool_start", "{", index, call["id"], call["function"]["name"])
        assert all(d.kind == "tool_args" and not d.id and not d.name for d in own[1:])
        assert "".join(d.text for d in own) == call["function"]["arguments"]


def same(text: str, chat: PreparedChat | None = None, truncated: bool = False) -> Answer:
    """The answer, after checking that pieces of every size give the same."""
    answers = [parse(text, size, chat or prepared(), truncated) for size in PIECES]
    for answer in answers:
        assert (answer.reasoning, answer.content, answer.calls) == (
            answers[0].reasoning, answers[0].content, answers[0].calls)
    return answers[0]


def block(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


READ = block("read_file", ("path", "a.py"))
READ_CALL = ("read_file", '{"path":"a.py"}')


# text and calls: (output, reasoning, content, calls)
CASES: dict[str, tuple[str, str, str, list[tuple[str, str]]]] = {
    "text before the call": (f"ok</think>I will look.\n{READ}", "ok", "I will look.", [READ_CALL]),
    "thoughts, blank lines, answer": ("I'm\nthinking\n</think>\n\nHello\nyou ", "I'm\nthinking", "Hello\nyou ", []),
    "no thoughts": (f"</think>\n\n{READ}", "", "", [READ_CALL]),
    "opening tag once more after the call": (f"ok</think>{READ}\n<think>", "ok", "", [READ_CALL]),
    "thoughts after the call": (f"ok</think>{READ}\n<think>\nmore\n</think>\n", "ok\nmore", "", [READ_CALL]),
    "opening tag at the end": ("</think>answer<think>", "", "answer", []),
    "opening tag and white space at the end": ("</think>answer \n<think>\n", "", "answer", []),
    "tag inside an answer": ("</think>Use `<think>` and `</think>`.", "", "Use `<think>` and `</think>`.", []),
    "closing tag twice": ("a</think>\n</think>\nb", "a", "b", []),
    "opening tag after the thoughts": ("a</think>\n<think>b</think>c", "a\nb", "c", []),
    "call inside the thoughts": (f"I need it\n{READ}", "I need it", "", [READ_CALL]),
    "call inside the thoughts, closed later": (f"I need it\n{READ}\n</think>\n", "I need it", "", [READ_CALL]),
    "call as the first thought": (READ, "", "", [READ_CALL]),
    "quoted tag in thoughts": ("say <tool_call> here</think>x", "say <tool_call> here", "x", []),
    "quoted tag in an answer": ("</think>say `<tool_call>` or <tool_call>\nx", "",
                                "say `<tool_call>` or <tool_call>\nx", []),
    "two calls": (f"</think>{READ}\n{READ}", "", "", [READ_CALL, READ_CALL]),
    "text between calls": (f"</think>{READ}\nand\n\n{READ}\n", "", "and", [READ_CALL, READ_CALL]),
    "text before and between": (f"</think>A\n{READ}\nB\n{READ}", "", "A\nB", [READ_CALL, READ_CALL]),
    "markup in an answer": ("</think>a <b> c </b> << d <", "", "a <b> c </b> << d <", []),
    "open thoughts": ("so far \n", "so far \n", "", []),
    "empty": ("", "", "", []),
    "white space only": (" \n", "", "", []),
}


@pytest.mark.parametrize("name", CASES)
def test_text_and_calls(name: str) -> None:
    text, reasoning, content, calls = CASES[name]
    answer = same(text)
    assert (answer.reasoning, answer.content, answer.calls) == (reasoning, content, calls)


# one call's body behind `<function=NAME>`, and the arguments it means
BODIES: dict[str, tuple[str, str, str]] = {
    "doubled end tag": ("read_file", "<parameter=path>\nx\n</parameter>\n</parameter>\n</function>\n", '{"path":"x"}'),
    "missing parameter": ("write_file", "<parameter=path>\nx\n</parameter>\n</function>\n", '{"path":"x"}'),
    "no parameters": ("read_file", "</function>\n", "{}"),
    "no line breaks": ("read_file", "<parameter=path>x.py</parameter></function>", '{"path":"x.py"}'),
    "no break before the end tag": ("read_file", "<parameter=path>\nx</parameter>\n</function>\n", '{"path":"x"}'),
    "no end tag of the parameter": ("read_file", "<parameter=path>\nx\n</function>\n", '{"path":"x"}'),
    "no end tag of the function": ("read_file", "<parameter=path>\nx\n</parameter>\n", '{"path":"x"}'),
    "prose between parameters": ("read_file", "then\n<parameter=path>\nx\n</parameter>\n<b>\n</function>\n",
                                 '{"path":"x"}'),
    "call tags in a string": ("read_file", f"<parameter=path>\n{READ[:30]}</tool_call>\n</parameter>\n</function>\n",
                              json.dumps({"path": READ[:30] + "</tool_call>"}, separators=(",", ":"))),
    "end tag in a string": ("read_file", "<parameter=path>\na</parameter>b\n</function>c\n</parameter>\n</function>\n",
                            '{"path":"a</parameter>b\\n</function>c"}'),
    "string with line breaks": ("read_file", "<parameter=path>\n\n  a\n\n\n</parameter>\n</function>\n",
                                '{"path":"\\n  a\\n\\n"}'),
    "empty string": ("read_file", "<parameter=path>\n\n</parameter>\n</function>\n", '{"path":""}'),
    "emptier string": ("read_file", "<parameter=path>\n</parameter>\n</function>\n", '{"path":""}'),
    "string that looks like JSON": ("read_file", '<parameter=path>\n{"a":1}\n</parameter>\n</function>\n',
                                    '{"path":"{\\"a\\":1}"}'),
    "quotes and controls": ("read_file", '<parameter=path>\n"é\t\\🙂"\n</parameter>\n</function>\n',
                            '{"path":"\\"é\\t\\\\🙂\\""}'),
    "unknown function": ("other", "<parameter=x>\nhello\n</parameter>\n</function>\n", '{"x":"hello"}'),
    "unknown parameter": ("read_file", "<parameter=n>\n5\n</parameter>\n</function>\n", '{"n":5}'),
}
TYPED: list[tuple[str, str, str]] = [
    ("i", "-12", "-12"), ("n", "3.5e-7", "3.5e-7"), ("b", "true", "true"), ("b", "False", "false"),
    ("z", "null", "null"), ("a", '[1, {"a": null}]', '[1,{"a":null}]'), ("o", "{'k': True}", '{"k":true}'),
    ("o", '{\n "k": "</parameter>"\n}', '{"k":"</parameter>"}'),
    ("i", "many", '"many"'), ("i", "", '""'), ("z", "", "null"), ("a", "[1, 2", "[1,2]"), ("a", '[1] x', "[1]"),
    ("sn", "null", "null"), ("sn", "nullify", '"nullify"'), ("sn", "12", '"12"'), ("so", '{"a": 1}', '{"a":1}'),
    ("so", '{"a": 1', '"{\\"a\\": 1"'), ("so", "[1]", '"[1]"'), ("any", "7", "7"), ("any", "text", '"text"'),
    ("any", "[1, 2]", "[1,2]"), ("any", "1" * 70, f'"{"1" * 70}"'), ("e", "2", "2"), ("c", "x", '"x"'),
    ("i", '"5"', '"5"'),
]


@pytest.mark.parametrize("name", BODIES)
def test_call_bodies(name: str) -> None:
    function, body, arguments = BODIES[name]
    answer = same(f"</think><tool_call>\n<function={function}>\n{body}</tool_call>")
    assert answer.calls == [(function, arguments)] and not answer.content
    assert isinstance(json.loads(arguments), dict)


@pytest.mark.parametrize(("parameter", "text", "value"), TYPED)
def test_typed_values(parameter: str, text: str, value: str) -> None:
    assert same("</think>" + block("f", (parameter, text))).calls == [("f", f'{{"{parameter}":{value}}}')]


@pytest.mark.parametrize(("schema", "types"), [
    ({"$ref": "#/$defs/p"}, {"integer"}), ({"$ref": "#/$defs/loop"}, None), ({"$ref": "http://x"}, None), (True, None),
    ({"type": ["string", "null"]}, {"string", "null"}), ({"type": "string", "nullable": True}, {"string", "null"}),
    ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, {"integer"}), ({"items": {}}, {"array"}),
    ({"oneOf": [{"type": "string"}, {"properties": {}}]}, {"string", "object"}), ({"pattern": "x"}, {"string"}),
])
def test_schema_types(schema: Any, types: set[str] | None) -> None:
    parameters = {"properties": {"p": schema}, "$defs": {"p": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}
    found = parameter_types({"parameters": parameters})["p"]
    assert found == types if types else len(found) == 7


def test_string_arguments_stream_at_once() -> None:
    parser = ChatStreamParser(prepared(), lambda: "id")
    parser.push("</think><tool_call>\n<function=write_file")
    assert [delta.to_openai() for delta in parser.push(">")] == [{"tool_calls": [
        {"index": 0, "id": "id", "type": "function", "function": {"name": "write_file", "arguments": "{"}}]}]
    assert [d.text for d in parser.push("\n<parameter=content>\n")] == ['"content":"']
    assert parser.call_open
    for piece in ("line one", "é\"\n", "x < y"):
        sent = "".join(d.text for d in parser.push(piece))
        assert sent, piece
    assert [delta.to_openai() for delta in parser.push("!")] == [
        {"tool_calls": [{"index": 0, "function": {"arguments": "!"}}]}]


# cut answers


@pytest.mark.parametrize(("text", "reasoning", "content", "calls"), [
    ("</think>" + READ[:60], "", "", [("read_file", '{"path":"a.py')]),
    ("</think>" + READ[:49], "", "", [("read_file", '{"path":"')]),
    ("</think>" + READ[:33], "", "", [("read_file", "{")]),
    ("</think>Look. " + READ[:20], "", "Look.", []),
    ("hm " + READ[:11], "hm", "", []),
    ("</think>" + block("f", ("i", "1"), ("b", "true"))[:-27], "", "", [("f", '{"i":1,"b":true')]),
    ("</think>" + block("f", ("i", "1"), ("b", "true"))[:57], "", "", [("f", '{"i":1')]),
    ("thinking", "thinking", "", []),
])
def test_cut_by_a_limit(text: str, reasoning: str, content: str, calls: list[tuple[str, str]]) -> None:
    answer = same(text, truncated=True)
    assert answer.reasoning == reasoning and answer.content == content
    assert answer.calls == calls


def test_ended_by_the_model_inside_a_call() -> None:
    assert same("</think>" + READ[:60]).calls == [("read_file", '{"path":"a.py"}')]
    assert same("</think>" + READ[:33]).calls == [("read_file", "{}")]


# settings


def test_format_none_keeps_everything_in_content() -> None:
    answer = same("ab</think>\n\ncd", prepared(extract_reasoning=False))
    assert (answer.reasoning, answer.content) == ("", "<think>\nab</think>\n\ncd")


def test_thinking_off() -> None:
    chat = prepared(parse_prefix="<think>\n\n</think>\n\n", enable_thinking=False)
    assert same("\nHello", chat).content == "Hello"
    assert same("<think>x</think>y", chat).content == "<think>x</think>y"
    assert same(READ, chat).calls == [READ_CALL]


def test_tool_choice_none_keeps_calls_as_text() -> None:
    answer = same(f"ok</think>{READ}", prepared(parse_tools=False))
    assert (answer.reasoning, answer.content, answer.calls) == ("ok", READ, [])
    assert same(f"ok\n{READ}", prepared(parse_tools=False)).content == READ


def test_one_call_without_parallel_calls() -> None:
    answer = same(f"</think>A {READ}\n{READ}\nB", prepared(parallel_tool_calls=False))
    assert (answer.content, answer.calls) == ("A", [READ_CALL])
    parser = ChatStreamParser(prepared(parallel_tool_calls=False))
    parser.push("</think>" + READ[:-20])
    assert not parser.finished_calls
    parser.push(READ[-20:])
    assert parser.finished_calls


def test_bare_function_of_coder_models() -> None:
    chat = prepared(parse_prefix="", extract_reasoning=False, allow_bare_function=True)
    bare = READ.removeprefix("<tool_call>\n")
    assert same(bare, chat).calls == [READ_CALL]
    assert same(f"{bare}\n{bare}", chat).calls == [READ_CALL, READ_CALL]
    assert same("#include <functional> <function=x>", chat).content == "#include <functional> <function=x>"
    assert same("</think>" + bare).content == bare  # only where the model family does it


def test_content_only() -> None:
    chat = PreparedChat(prompt="")
    assert same(f" <think>a</think>{READ}", chat).content == f" <think>a</think>{READ}"


# JSON calls


def hermes(**fields: Any) -> PreparedChat:
    return prepared(**{"format": "hermes_json", "parse_prefix": "", **fields})


@pytest.mark.parametrize(("body", "calls"), [
    ('{"name": "read_file", "arguments": {"path": "a.py"}}', [("read_file", '{"path":"a.py"}')]),
    ('{"arguments": {"path": "a.py"}, "name": "read_file"}', [("read_file", '{"path":"a.py"}')]),
    ('{"name": "f", "parameters": {"a": [1, {"b": "</tool_call>"}]}}', [("f", '{"a":[1,{"b":"</tool_call>"}]}')]),
    ('{"name": "f", "arguments": "{\\"a\\": 1}"}', [("f", '{"a":1}')]),
    ('{"name": "f", "arguments": null}', [("f", "{}")]),
    ('{"name": "f"}', [("f", "{}")]),
    ('{"id": 7, "name": "f", "arguments": {}}', [("f", "{}")]),
    ('{"name": "f", "arguments": {"a": 1 2}}', [("f", '{"a":1}')]),
    ('{"name": "f", "arguments": {"a": "x"', [("f", '{"a":"x"}')]),
    ("{'name': 'f', 'arguments': {'a': True}}", []),
])
def test_hermes(body: str, calls: list[tuple[str, str]]) -> None:
    answer = same(f"<think>\nhm\n</think>\n\nSo:\n<tool_call>\n{body}\n</tool_call>", hermes())
    assert answer.reasoning == "hm" and answer.calls == calls
    if calls:
        assert answer.content == "So:"
    else:
        assert body in answer.content


def test_hermes_quoted_and_several() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    answer = same(f"Write <tool_call> or <tool_call>{{x}}.\n{call}\n{call}", hermes())
    assert answer.calls == [("f", "{}")] * 2
    assert answer.content == "Write <tool_call> or <tool_call>{x}."


def test_hermes_without_a_name_is_text() -> None:
    text = '<tool_call>\n{"arguments": {"a": 1}}\n</tool_call>'
    assert same(text, hermes()).content.startswith('<tool_call>\n{"arguments": {"a": 1}}')
    assert same(text[:25], hermes()).content == text[:25]


def test_prompt_and_parser_agree(hermes_template: ChatTemplate) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS}
    chat = prepare_chat(body, hermes_template, ChatOptions())
    assert same('<think>a</think><tool_call>{"name":"f"}</tool_call>', chat).calls == [("f", "{}")]
    plain = prepare_chat({**body, "tool_choice": "none"}, hermes_template, ChatOptions(skip_chat_parsing=True))
    assert same("\n<think>a</think>", plain).content == "<think>a</think>"


# properties

TOKENS = st.sampled_from([
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "read_file", "f", ">", "</function>",
    "<parameter=", "path", "any", "</parameter>", "\n", " ", "<",
    "</", "{", "}", '"name"', '"arguments"', ":", ",", '"', "'", "\\",
    "1", "true", "text", "é", "🙂", "[", "]", "a", "\t"])
TEXTS = st.lists(TOKENS, max_size=40).map("".join) | st.lists(
    st.sampled_from([READ, READ[:50], READ[30:], block("f", ("any", "[1]"), ("i", "x")), "</think>", "\n", "text",
                     '<tool_call>\n{"name": "f", "arguments": {"a": [1, "x"]}}\n</tool_call>']),
    max_size=6).map("".join)
CHATS = st.sampled_from([prepared(), hermes(), prepared(parse_tools=False), prepared(parallel_tool_calls=False),
                         prepared(extract_reasoning=False, allow_bare_function=True), PreparedChat(prompt="")])


@settings(max_examples=300)
@given(TEXTS, CHATS, st.data(), st.booleans())
def test_any_split_gives_the_same_message(text: str, chat: PreparedChat, data: st.DataObject, truncated: bool) -> None:
    whole = parse(text, len(text) + 1, chat, truncated)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    parser = ChatStreamParser(chat, lambda: "id")
    deltas: list[Delta] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)]):
        deltas += parser.push(text[start:end])
    deltas += parser.finish(truncated)
    message = parser.message()
    check_deltas(deltas, message.to_openai())
    assert (whole.reasoning, whole.content, whole.calls) == (
        message.reasoning_content, message.content, [(c.name, c.arguments) for c in message.tool_calls])
    if not truncated:
        for call in message.tool_calls:
            assert isinstance(json.loads(call.arguments), dict)


@given(st.text(max_size=60), st.integers(1, 9))
def test_string_values_are_exact(value: str, size: int) -> None:
    """What a string parameter says arrives unchanged, unless it contains the end tag itself."""
    if "</parameter>" in value or "</function>" in value or any(0xD800 <= ord(c) < 0xE000 for c in value):
        return
    answer = parse("</think>" + block("write_file", ("content", value)), size, prepared())
    assert json.loads(answer.calls[0][1]) == {"content": value}


# work


def lines_run(action: Callable[[], None]) -> int:
    """Python lines executed by an action: a measure of work that no other process disturbs."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(previous)
    return lines


@pytest.mark.parametrize(("chat", "opening"), [
    (prepared(), "</think><tool_call>\n<function=write_file>\n<parameter=content>\n"),
    (prepared(), "</think><tool_call>\n<function=f>\n<parameter=a>\n[\""),
    (hermes(), '<tool_call>\n{"name": "write_file", "arguments": {"content": "'),
    (prepared(), ""),
    (prepared(), "</think>"),
])
def test_work_per_token_is_constant(chat: PreparedChat, opening: str) -> None:
    parser = ChatStreamParser(chat)
    parser.push(opening)
    piece = "x = <b> y </b> \n\n"

    def push_many(times: int) -> int:
        most = 0
        for _ in range(times):
            parser.push(piece)
            most = max(most, parser.held_chars)
        return most

    first = lines_run(lambda: push_many(100) and None)
    assert push_many(200_000 // len(piece)) < 100  # what is held does not grow
    last = lines_run(lambda: push_many(100) and None)
    assert last <= first * 1.1 + 50


def test_work_for_one_large_piece_is_linear() -> None:
    def work(size: int) -> int:
        text = "</think>" + block("write_file", ("content", "a < b\n" * size)) + "x < y\n" * size
        return lines_run(lambda: parse(text, len(text), prepared()) and None)

    assert work(4000) < 4.4 * work(1000)


def test_endless_white_space_is_cheap() -> None:
    parser = ChatStreamParser(prepared())
    parser.push("a")
    first = lines_run(lambda: parser.push("\n") and None)
    for _ in range(20_000):
        parser.push("\n")
    assert lines_run(lambda: parser.push("\n") and None) <= first + 5
    assert parser.finish() != [] and parser.held_chars == 0
