"""Reports about context limits that are told wrongly, and about input that crashed a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.field_reports.force import CHAT, HI, MESSAGES, RESPONSES, tool
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import ids, make_client, post, post_error, said, stream

N_CTX = 1024
EXCEEDED = "request ({} tokens) exceeds the available context size ({} tokens), try increasing it"


def client_with(n_ctx: int = N_CTX) -> FlaskClient:
    return make_client(ScriptedEngine(Script([5], repeat=True), n_ctx_slot=n_ctx))


# limits


def test_the_served_limit_is_told_everywhere() -> None:
    client = client_with()
    model = client.get("/v1/models").get_json()["data"][0]["meta"]
    assert model["n_ctx"] == N_CTX < model["n_ctx_train"]
    assert client.get("/props").get_json()["default_generation_settings"]["n_ctx"] == N_CTX
    assert {slot["n_ctx"] for slot in client.get("/slots").get_json()} == {N_CTX}


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES, "/completion", "/v1/completions"])
@pytest.mark.parametrize("excess", [0, 1, N_CTX // 5, N_CTX // 2])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_beyond_the_limit(path: str, excess: int, streamed: bool) -> None:
    def body(n_words: int) -> dict[str, Any]:
        text = "a" + " a" * (n_words - 1)
        field = {"/completion": "prompt", "/v1/completions": "prompt", RESPONSES: "input"}.get(path)
        return {field: text} if field else {"messages": [{"role": "user", "content": text}]}

    engine = ScriptedEngine(said("x"))
    post(make_client(engine), path, body(1))
    around = len(engine.requests[0].prompt) - len(ids("a"))
    n_prompt = N_CTX + excess
    engine = ScriptedEngine(said("x"), n_ctx_slot=N_CTX)
    status, error = post_error(make_client(engine), path, {**body(n_prompt - around), "stream": streamed})
    assert (status, error["type"]) == (400, "exceed_context_size_error")
    assert error["message"] == EXCEEDED.format(n_prompt, N_CTX)
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (n_prompt, N_CTX)
    assert engine.requests == []


@pytest.mark.parametrize("more", [-1, 0, 1, 100_000])
def test_an_answer_may_be_allowed_more_than_fits(more: int) -> None:
    """Only a prompt that does not fit is an error; the answer is cut where the context ends."""
    n_prompt = 50
    client = client_with()
    body = {"prompt": [5] * n_prompt, "max_tokens": N_CTX - n_prompt + more}
    answer = post(client, "/completion", body)
    assert answer["tokens_predicted"] == min(N_CTX - n_prompt, body["max_tokens"])
    assert answer["stop_type"] == "limit" and answer["truncated"] == (more >= 1)
    choice = post(client, "/v1/completions", body)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert stream(client, "/v1/completions", body)[-2]["choices"][0]["finish_reason"] == "length"


# input

BAD_CHATS: list[tuple[Any, str]] = [
    ({}, "messages"), ([], "messages"), (None, "messages"), ({"messages": "hi"}, "messages"),
    ({"messages": [{}]}, "content"), ({"messages": [{"role": 1}]}, "content"),
    ({"messages": HI, "temperature": "hot"}, "temperature"), ({"messages": HI, "max_tokens": -5}, "max_tokens"),
    ({"messages": HI, "n": 0}, "'n'"), ({"messages": HI, "stop": [1]}, "stop"),
    ({"messages": HI, "seed": "x"}, "seed"), ({"messages": HI, "top_p": []}, "top_p"),
    ({"messages": HI, "stream": "x"}, "stream"), (b'{"messages": [], "temperature": NaN}', "parse error"),
    (b'{"messages": "\xff\xfe"}', "ill-formed UTF-8"), (b'{"a": "\\ud800"}', "parse error"), (b"{bad", "parse error"),
    (b"", "empty input"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "named"), BAD_CHATS)
def test_bad_requests_are_400_and_say_what_is_wrong(body: Any, named: str) -> None:
    engine = ScriptedEngine(said("x"))
    client = make_client(engine)
    status, error = post_error(client, CHAT, body)
    assert (status, error["type"], error["code"]) == (400, "invalid_request_error", 400), error
    assert named in error["message"], error
    assert engine.requests == [] and client.get("/health").status_code == 200


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {}},
    {},
    {"type": "object", "properties": {"a": {"type": "object", "properties": {
        "b": {"type": "string", "maxLength": 65536}}}}},
    {"type": "object", "properties": {"a": {"type": "array", "maxItems": 1_000_000, "items": {"type": "string"}}}},
    *({"type": "object", "properties": {"a": {"type": "string", **extra}}} for extra in (
        {"pattern": r"^\d{4}-\d{2}$"}, {"pattern": "^(?!x).*$"}, {"pattern": r"\!\w[\-]"}, {"pattern": "("},
        {"format": "date-time"}, {"format": "uri"}, {"format": "no-such"})),
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"type": "object", "properties": {"a": True, "b": False, "c": {"anyOf": []}, "d": {"type": ["hiccup"]}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_no_schema_of_a_tool_stops_the_others(schema: dict[str, Any]) -> None:
    odd = {"type": "function", "function": {"name": "odd", "parameters": schema}}
    call = "<tool_call>\n<function=odd>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
    client = make_client(ScriptedEngine(said("</think>" + call)))
    answer = post(client, CHAT, {"messages": HI, "tools": [odd, tool("good", a={"type": "string"})]})
    (made,) = answer["choices"][0]["message"]["tool_calls"]
    assert made["function"] == {"name": "odd", "arguments": '{"a":"x"}'}
