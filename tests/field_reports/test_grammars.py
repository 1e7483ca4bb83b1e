"""Reports about schemas that end a request, schemas that constrain the thoughts, and grammars that end the process."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from pyjet.engine.local import LocalEngine
from pyjet.grammar.check import check_lark
from pyjet.grammar.description import Grammar
from pyjet.grammar.json_schema import json_rule
from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from tests.field_reports.force import CHAT, HI
from tests.grammar.walk import allowed, compiler
from tests.server.real import has_library, tiny_engine, tiny_service
from tests.server.scripted import post, post_error, stream

pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
QUOTE = [['"', 20.0]]  # strings end as soon as they may
QUIET = {"chat_template_kwargs": {"enable_thinking": False}}
GOOD = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}
LONG = {"type": "object", "properties": {"a": {"type": "object", "properties": {
    "b": {"type": "string", "minLength": 2, "maxLength": 65536}}, "required": ["b"]}}, "required": ["a"]}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[FlaskClient]:
    with tiny_engine() as engine:
        yield client_of(engine)


def client_of(engine: LocalEngine) -> FlaskClient:
    return create_app(tiny_service(engine), ServerOptions()).test_client()


def tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def call(client: FlaskClient, name: str, parameters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The arguments of a call that is required, beside a good tool."""
    body = {
        "messages": HI, "tools": [tool("good", GOOD), tool(name, parameters)], "max_tokens": 400, "temperature": 0,
        "tool_choice": {"type": "function", "function": {"name": name}}, "parallel_tool_calls": False,
        **QUIET, **fields,
    }  # fmt: skip
    (choice,) = post(client, CHAT, body)["choices"]
    assert choice["finish_reason"] == "tool_calls", choice
    (made,) = choice["message"]["tool_calls"]
    assert made["function"]["name"] == name
    arguments: dict[str, Any] = json.loads(made["function"]["arguments"])
    return arguments


def test_empty_objects_and_long_bounds(client: FlaskClient) -> None:
    assert call(client, "empty", {"type": "object", "properties": {}}) == {}
    assert len(call(client, "long", LONG, logit_bias=QUOTE)["a"]["b"]) >= 2
    body = {"prompt": "x", "json_schema": LONG, "n_predict": 99, "temperature": 0, "logit_bias": QUOTE}
    assert len(json.loads(post(client, "/completion", body)["content"])["a"]["b"]) >= 2


PATTERNS = [
    ({"type": "string", "pattern": "^\\d{4}-\\d{2}$"}, True),
    ({"type": "string", "pattern": "^[\\w]{3}\\!$"}, True),
    ({"type": "string", "format": "date-time"}, True),
    ({"type": "string", "format": "uri", "maxLength": 60}, None),
    ({"type": "string", "pattern": "^(?!x).*$"}, False),
    ({"type": "string", "format": "made-up"}, False),
]


@pytest.mark.parametrize(("part", "is_supported"), PATTERNS)
def test_patterns_and_formats(client: FlaskClient, part: dict[str, Any], is_supported: bool | None) -> None:
    """In tools none of them is an error. In a strict schema one that cannot be enforced is, and its place is said."""
    properties = {**GOOD["properties"], "when": part}
    schema = {"type": "object", "properties": properties, "required": ["n"]}
    assert set(call(client, "odd", schema)) <= {"n", "when"}
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    bias = [*QUOTE, ["Z", 15.0]]
    body = {"messages": HI, "response_format": form, "max_tokens": 99, "temperature": 0, "logit_bias": bias, **QUIET}
    if is_supported is not False:
        assert json.loads(post(client, CHAT, body)["choices"][0]["message"]["content"])["n"] <= 9
        return
    status, error = post_error(client, CHAT, body)
    assert status == 400 and "JSON schema error at #/properties/when: " in error["message"]
    form["json_schema"]["strict"] = False  # type: ignore[index]
    assert json.loads(post(client, CHAT, body)["choices"][0]["message"]["content"])["n"] <= 9


@pytest.mark.parametrize("streamed", [False, True])
def test_a_schema_leaves_thoughts_free(client: FlaskClient, streamed: bool) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}}, "required": ["answer"]}
    body = {"messages": HI, "json_schema": schema, "max_tokens": 400, "temperature": 0, "reasoning_budget_tokens": 16}
    for thinks in (True, False):
        asked = {**body, "chat_template_kwargs": {"enable_thinking": thinks}}
        if streamed:
            chunks = [event for event in stream(client, CHAT, asked) if event != "[DONE]" and event["choices"]]
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            thoughts = "".join(delta.get("reasoning_content") or "" for delta in deltas)
            content = "".join(delta.get("content") or "" for delta in deltas)
        else:
            message = post(client, CHAT, asked)["choices"][0]["message"]
            thoughts, content = message.get("reasoning_content", ""), message["content"]
        assert bool(thoughts) == thinks and not thoughts.startswith("{")
        assert set(json.loads(content)) == {"answer"}


MALFORMED = [
    "root ::= (",
    "root ::= root",
    "root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000,
    "root ::= ",
    'root ::= "' + "a" * (1 << 20) + '"',
]


@pytest.mark.parametrize("grammar", MALFORMED, ids=["open", "endless", "nested", "empty", "large"])
def test_malformed_grammars_are_400(client: FlaskClient, grammar: str) -> None:
    status, error = post_error(client, "/completion", {"prompt": "x", "grammar": grammar})
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert "line 1, column " in error["message"] or "is too long" in error["message"]
    assert post(client, "/completion", {"prompt": "x", "n_predict": 1})["tokens_predicted"] == 1


def test_left_recursion_is_no_fault(client: FlaskClient) -> None:
    grammar = 'root ::= sum "."\nsum ::= sum "+" [0-9] | [0-9]'
    body = {"prompt": "x", "grammar": grammar, "n_predict": 40, "logit_bias": [[".", 30.0]]}
    assert post(client, "/completion", body)["content"].endswith(".")


@pytest.mark.slow
def test_many_schemas_leave_memory_flat() -> None:
    """Different ones, so that nothing that is kept of each can hide. The first requests fill the small prefix cache."""
    with tiny_engine(max_checkpoints=4, cache_ram=4) as engine:
        check_memory(client_of(engine))


def resident_kib() -> int:
    """Of now: the largest that the process ever had would hide what is lost after tests that needed more."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def check_memory(client: FlaskClient) -> None:
    def schema(i: int) -> dict[str, Any]:
        return {"type": "object", "properties": {f"p{i}": {"type": "integer", "maximum": 3}}, "required": [f"p{i}"]}

    def ask(i: int) -> None:
        body = {"prompt": "x", "json_schema": schema(i), "n_predict": 24, "temperature": 0}
        assert list(json.loads(post(client, "/completion", body)["content"])) == [f"p{i}"]

    def compile_grammar(i: int) -> None:
        lark = f"start: {json_rule(schema(i))}"
        check_lark(lark)
        assert len(allowed(compiler().constraint(Grammar(lark)))) > 0

    for i in range(100):
        compile_grammar(i)
    for i in range(40):
        ask(i)
    before = resident_kib()
    for i in range(100, 500):
        compile_grammar(i)
    for i in range(40, 80):
        ask(i)
    grown = resident_kib() - before
    assert grown < 20_000, f"{grown} KiB more"
