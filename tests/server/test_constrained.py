"""Constrained answers with the real engine, by every field, option and API; and what is said about wrong ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from pyjet.engine.local import LocalEngine
from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from tests.server.real import has_library, tiny_engine, tiny_service
from tests.server.scripted import post, post_error, stream

pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "What is the weather in Paris?"}]
QUIET = {"chat_template_kwargs": {"enable_thinking": False}}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with tiny_engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def client(engine: LocalEngine) -> FlaskClient:
    return client_of(engine)


def client_of(engine: LocalEngine, **options: Any) -> FlaskClient:
    return create_app(tiny_service(engine, **options), ServerOptions(**options)).test_client()


def check_person(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["name", "age"] and len(value["name"]) <= 12
    assert isinstance(value["age"], int) and value["age"] <= 99


def chat_text(answer: dict[str, Any]) -> str:
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop", choice
    text: str = choice["message"]["content"]
    return text


# text


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/infill"])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_schema_of_a_completion(client: FlaskClient, path: str, temperature: float) -> None:
    body = {"prompt": "A person: ", "input_prefix": "a", "input_suffix": "b", "json_schema": SCHEMA, "seed": 3,
            "n_predict": 200, "temperature": temperature}  # fmt: skip
    answer = post(client, path, body)
    choice = answer["choices"][0] if "choices" in answer else answer
    check_person(choice["text"] if "text" in choice else choice["content"])
    assert choice.get("finish_reason", "stop") == "stop" and answer.get("stop_type", "eos") == "eos"


def test_a_grammar_of_a_completion(client: FlaskClient) -> None:
    body = {"prompt": "x", "grammar": 'root ::= "a🤗b" [0-9]{3}', "n_predict": 30}
    answer = post(client, "/completion", body)
    assert answer["content"][:3] == "a🤗b" and len(answer["content"]) == 6 and answer["content"][3:].isdigit()
    assert answer["generation_settings"]["grammar"] == body["grammar"]
    assert "".join(event["content"] for event in stream(client, "/completion", {**body, "seed": 5}))[:3] == "a🤗b"


def test_a_grammar_wins_over_a_schema(client: FlaskClient) -> None:
    body = {"prompt": "x", "grammar": 'root ::= "yes"', "json_schema": SCHEMA, "n_predict": 30}
    assert post(client, "/completion", body)["content"] == "yes"


def test_every_sampler_and_probabilities_keep_to_the_grammar(client: FlaskClient) -> None:
    body = {"prompt": "x", "grammar": "root ::= [0-9]{6}", "n_predict": 30, "temperature": 2.0}
    for more in (
        {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"typical_p": 0.5},
        {"repeat_penalty": 1.5, "repeat_last_n": 64},
        {"samplers": []},
        {"temperature": 0.0},
        {"temperature": 0.0, "logit_bias": [["a", 100.0]]},
    ):
        assert post(client, "/completion", {**body, **more})["content"].isdigit(), more
    answer = post(client, "/completion", {**body, "n_probs": 3})
    assert answer["content"].isdigit()
    first = answer["completion_probabilities"][0]
    assert len(first["top_logprobs"]) == 3 and not all(top["token"].isdigit() for top in first["top_logprobs"])
    after = post(client, "/completion", {**body, "n_probs": 3, "post_sampling_probs": True})
    assert all(top["token"].isdigit() for top in after["completion_probabilities"][0]["top_probs"])


def test_ends_that_are_banned_do_not_keep_a_complete_answer_open(client: FlaskClient) -> None:
    body = {"prompt": "x", "grammar": 'root ::= "a"', "n_predict": 30, "ignore_eos": True}
    answer = post(client, "/completion", body)
    assert (answer["content"], answer["stop_type"]) == ("a", "eos")


def test_a_lazy_grammar_waits_for_its_trigger(client: FlaskClient) -> None:
    """The bias makes the trigger certain; what follows is the grammar's."""
    body = {
        "prompt": "x", "grammar": 'root ::= "=" [0-9]{4}', "grammar_lazy": True, "n_predict": 40, "temperature": 0,
        "grammar_triggers": [{"type": 1, "value": "="}], "logit_bias": [["=", 100.0]],
    }  # fmt: skip
    for triggers in (body["grammar_triggers"], [{"type": 2, "value": "(=)"}]):
        answer = post(client, "/completion", {**body, "grammar_triggers": triggers})
        assert len(answer["content"]) == 5 and answer["content"][1:].isdigit()
    never = {**body, "grammar_triggers": [{"type": 1, "value": "§§"}], "logit_bias": []}
    plain = {"prompt": "x", "n_predict": 40, "temperature": 0}
    assert post(client, "/completion", never)["content"] == post(client, "/completion", plain)["content"]


@pytest.mark.parametrize("triggers", [["="], [{"type": 1}], [{"type": 2, "value": "("}], [{"type": 9, "value": "a"}]])
def test_triggers_that_are_none(client: FlaskClient, triggers: list[Any]) -> None:
    body = {"prompt": "x", "grammar": 'root ::= "a"', "grammar_lazy": True, "grammar_triggers": triggers}
    status, error = post_error(client, "/completion", body)
    assert status == 400 and error["message"].startswith("Field 'grammar_triggers': Error: ")


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", CHAT])
@pytest.mark.parametrize("triggers", [{}, {"grammar_triggers": None}, {"grammar_triggers": []}])
def test_a_lazy_grammar_without_a_trigger_is_refused(client: FlaskClient, path: str, triggers: dict[str, Any]) -> None:
    body = {"prompt": "x", "messages": HI, "grammar": 'root ::= "a"', "grammar_lazy": True, "n_predict": 2}
    status, error = post_error(client, path, {**body, **triggers})
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == "Field 'grammar_triggers': Error: no triggers set for lazy grammar!"


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", CHAT])
@pytest.mark.parametrize("streamed", [False, True])
def test_wrong_grammars_and_schemas_are_400(client: FlaskClient, path: str, streamed: bool) -> None:
    body = {"prompt": "x", "messages": HI, "stream": streamed}
    status, error = post_error(client, path, {**body, "grammar": "root ::= ("})
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith("Failed to initialize samplers: failed to parse grammar: line 1, column 11: ")
    status, error = post_error(client, path, {**body, "json_schema": {"properties": {"a": {"type": "hiccup"}}}})
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == (
        "Field 'json_schema': \"json_schema\": JSON schema conversion failed:\n"
        "JSON schema error at #/properties/a: unrecognized type hiccup"
    )


# options


def test_a_grammar_of_the_command_line_is_the_default(engine: LocalEngine) -> None:
    client = client_of(engine, grammar='root ::= "yes" | "no"', reasoning="off")
    assert post(client, "/completion", {"prompt": "x", "n_predict": 20})["content"] in ("yes", "no")
    assert post(client, "/completion", {"prompt": "x", "n_predict": 8, "grammar": ""})["content"] not in ("yes", "no")
    assert chat_text(post(client, CHAT, {"messages": HI, "max_tokens": 20})) in ("yes", "no")
    check_person(chat_text(post(client, CHAT, {"messages": HI, "json_schema": SCHEMA, "max_tokens": 200})))


def test_a_grammar_of_the_command_line_does_not_hold_beside_tools(engine: LocalEngine) -> None:
    client = client_of(engine, grammar='root ::= "yes" | "no"', reasoning="off")
    body = {"messages": HI, "tools": TOOLS, "tool_choice": "required", "max_tokens": 300, "verbose": True}
    answer = post(client, CHAT, {**body, "grammar_lazy": True, "grammar_triggers": [{"type": 1, "value": "§§"}]})
    assert answer["choices"][0]["message"]["tool_calls"], "the trigger belongs to no grammar of this request"
    assert "get_weather" in answer["__verbose"]["generation_settings"]["grammar"]


def test_a_schema_of_the_command_line_is_the_default(engine: LocalEngine) -> None:
    client = client_of(engine, json_schema=json.dumps(SCHEMA), reasoning="off")
    check_person(post(client, "/completion", {"prompt": "x", "n_predict": 200})["content"])
    check_person(chat_text(post(client, CHAT, {"messages": HI, "max_tokens": 200})))


# chats


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"json_schema": SCHEMA},
    ],
)
def test_a_schema_of_a_chat(client: FlaskClient, fields: dict[str, Any]) -> None:
    body = {"messages": HI, "max_tokens": 300, "temperature": 0, **QUIET, **fields}
    check_person(chat_text(post(client, CHAT, body)))
    chunks = [event for event in stream(client, CHAT, body) if event != "[DONE]" and event["choices"]]
    check_person("".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks))


def test_any_json_object(client: FlaskClient) -> None:
    body = {"messages": HI, "max_tokens": 500, "response_format": {"type": "json_object"}, "temperature": 0, **QUIET}
    assert isinstance(json.loads(chat_text(post(client, CHAT, body))), dict)


def test_a_schema_of_a_response(client: FlaskClient) -> None:
    form = {"type": "json_schema", "name": "person", "schema": SCHEMA}
    body = {"input": "Hi", "text": {"format": form}, "max_output_tokens": 300, "temperature": 0, **QUIET}
    answer = post(client, "/v1/responses", body)
    check_person(answer["output"][-1]["content"][0]["text"])


def test_an_answer_that_was_begun_goes_on_within_the_schema(client: FlaskClient) -> None:
    messages = [*HI, {"role": "assistant", "content": '{"name": "Bo'}]
    body = {"messages": messages, "json_schema": SCHEMA, "max_tokens": 100, "temperature": 0, **QUIET}
    text = chat_text(post(client, CHAT, body))
    check_person(text)
    assert text.startswith('{"name": "Bo')


def test_thoughts_are_free_and_the_answer_is_not(client: FlaskClient) -> None:
    body = {"messages": HI, "json_schema": SCHEMA, "max_tokens": 600, "reasoning_budget_tokens": 12}
    for seed in range(3):
        answer = post(client, CHAT, {**body, "seed": seed})
        check_person(chat_text(answer))
        assert answer["choices"][0]["message"]["reasoning_content"]


# tools


def calls_of(answer: dict[str, Any]) -> list[tuple[str, Any]]:
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls", choice
    calls = choice["message"]["tool_calls"]
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]


def check_calls(calls: list[tuple[str, Any]]) -> None:
    assert calls
    for name, arguments in calls:
        if name == "now":
            assert arguments == {}
        else:
            assert name == "get_weather" and set(arguments) == {"city", "days"}
            assert isinstance(arguments["city"], str) and arguments["days"] in range(1, 8)


@pytest.mark.parametrize("seed", range(3))
def test_required_calls(client: FlaskClient, seed: int) -> None:
    body = {"messages": HI, "tools": TOOLS, "tool_choice": "required", "max_tokens": 600, "seed": seed,
            "parallel_tool_calls": seed != 0, "temperature": 0.9, **QUIET}  # fmt: skip
    answer = post(client, CHAT, body)
    check_calls(calls_of(answer))
    assert seed or len(calls_of(answer)) == 1


def test_a_named_call(client: FlaskClient) -> None:
    for name in ("now", "get_weather"):
        choice = {"type": "function", "function": {"name": name}}
        body = {"messages": HI, "tools": TOOLS, "tool_choice": choice, "max_tokens": 300, "temperature": 0, **QUIET}
        calls = calls_of(post(client, CHAT, {**body, "parallel_tool_calls": False}))
        check_calls(calls)
        assert [called for called, _ in calls] == [name]


def test_a_call_that_is_left_to_the_model(client: FlaskClient) -> None:
    """The bias makes it call; which tool, and with what, is as the schemas say."""
    level = {"type": "object", "properties": {"level": {"type": "integer", "maximum": 9}}, "required": ["level"]}
    tools = [{"type": "function", "function": {"name": "set_level", "parameters": level}}]
    body = {"messages": HI, "tools": tools, "max_tokens": 300, "temperature": 0, "logit_bias": [["<tool_call>", 60.0]],
            "parallel_tool_calls": False, **QUIET}  # fmt: skip
    ((name, arguments),) = calls_of(post(client, CHAT, body))
    assert name == "set_level" and arguments["level"] <= 9
    settings = post(client, CHAT, {**body, "verbose": True})["__verbose"]["generation_settings"]
    assert settings["grammar_lazy"] is True
    assert settings["grammar_triggers"] == [{"type": 1, "value": "<tool_call>"}]


def test_a_required_tool_of_the_messages_api(client: FlaskClient) -> None:
    tools = [{"name": "get_weather", "description": "Weather", "input_schema": WEATHER}]
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        body = {"messages": HI, "tools": tools, "tool_choice": {**choice, "disable_parallel_tool_use": True},
                "max_tokens": 300, "temperature": 0, **QUIET}  # fmt: skip
        answer = post(client, "/v1/messages", body)
        assert answer["stop_reason"] == "tool_use"
        check_calls([(block["name"], block["input"]) for block in answer["content"] if block["type"] == "tool_use"])


def test_a_required_tool_of_the_responses_api(client: FlaskClient) -> None:
    tools = [{"type": "function", "name": "get_weather", "parameters": WEATHER}]
    body = {"input": "Hi", "tools": tools, "tool_choice": "required", "max_output_tokens": 300, "temperature": 0,
            "parallel_tool_calls": False, **QUIET}  # fmt: skip
    answer = post(client, "/v1/responses", body)
    calls = [item for item in answer["output"] if item["type"] == "function_call"]
    check_calls([(call["name"], json.loads(call["arguments"])) for call in calls])
