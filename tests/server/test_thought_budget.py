"""Thoughts that end early: by a budget of tokens, or because the client says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjet.server.app import create_app
from pyjet.server.thought_budget import ThoughtBudget, ThoughtRule
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.scripted import ids, make_client, make_service, post, post_error, said, stream, tiny_tokenizer
from tests.server.test_chat import BATCHES, TOOLS, assembled, call_text

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
THINK = Script(ids("one two three four five six seven eight nine ten"), repeat=True)
END = "\n</think>"
ANSWER = said("\n\nHello you")


def ask(engine: ScriptedEngine, body: dict[str, Any], **options: Any) -> Any:
    return post(make_client(engine, **options), PATH, {"messages": HI, **body})


def thinking(batch: int = 1) -> Script:
    return Script(THINK.tokens, batch=batch, repeat=True)


def text_of(tokens: Any) -> str:
    return tiny_tokenizer().decode(tokens)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("budget", [2, 3, 7])
def test_the_budget_counts_from_the_tag(budget: int, batch: int) -> None:
    engine = ScriptedEngine(thinking(batch), ANSWER, n_slots=1)
    answer = ask(engine, {"reasoning_budget_tokens": budget})
    thoughts = list(THINK.tokens)[: budget - 1]  # the line break behind the tag is one of them
    (choice,) = answer["choices"]
    assert choice["message"]["reasoning_content"] == text_of(thoughts)
    assert choice["message"]["content"] == "Hello you" and choice["finish_reason"] == "stop"
    first, second = engine.requests
    assert second.prompt == (*first.prompt, *thoughts, *ids(END))
    assert second.n_before == len(thoughts) + len(ids(END))
    n_tokens = len(thoughts) + len(ids(END)) + len(ids("\n\nHello you")) + 1
    assert answer["usage"]["completion_tokens"] == answer["timings"]["predicted_n"] == n_tokens
    assert answer["usage"]["prompt_tokens"] == len(first.prompt)
    assert engine.cancels[0] == (first.id, len(thoughts)) and engine.wait_idle()


@pytest.mark.parametrize("batch", BATCHES)
def test_streams_say_the_same(batch: int) -> None:
    engine = ScriptedEngine(thinking(batch), ANSWER)
    body = {"messages": HI, "thinking_budget_tokens": 5, "stream_options": {"include_usage": True}}
    events = stream(make_client(engine), PATH, body)
    message = assembled(events)
    assert message["reasoning_content"] == text_of(list(THINK.tokens)[:4]) and message["content"] == "Hello you"
    assert events[-2]["usage"]["completion_tokens"] == 4 + len(ids(END)) + len(ids("\n\nHello you")) + 1
    assert [event["choices"][0]["finish_reason"] for event in events[:-2]][-1] == "stop"


@pytest.mark.parametrize("budget", [0, 1])
def test_no_thoughts_at_all(budget: int) -> None:
    engine = ScriptedEngine(said("\n\nHello you", cached=4))
    answer = ask(engine, {"reasoning_budget_tokens": budget})
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello you"}
    (request,) = engine.requests
    plain = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert text_of(request.prompt) == plain + END
    timings = answer["timings"]
    assert (timings["cache_n"], timings["prompt_n"]) == (4, len(ids(plain)) - 4)
    assert answer["usage"]["completion_tokens"] == len(ids(END)) + len(ids("\n\nHello you")) + 1


def test_thoughts_within_the_budget_are_left_alone() -> None:
    for text in ("short\n</think>\n\nHello you", "short\n" + call_text("Paris", 2)):
        engine = ScriptedEngine(said(text))
        ask(engine, {"reasoning_budget_tokens": 8, "tools": TOOLS})
        assert len(engine.requests) == 1


def test_each_thought_has_its_own_budget() -> None:
    call = "x\n</think>\n\n" + call_text("Paris", 2) + "\n<think>"
    engine = ScriptedEngine(Script([*ids(call), *THINK.tokens], repeat=True), said("\n\nDone."))
    answer = ask(engine, {"reasoning_budget_tokens": 6, "tools": TOOLS})
    assert engine.requests[1].prompt[-len(ids(END)) - 6 :] == (*list(THINK.tokens)[:6], *ids(END))
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_options_and_message() -> None:
    options = {"reasoning_budget": 3, "reasoning_budget_message": " Enough."}
    engine = ScriptedEngine(thinking(), ANSWER)
    message = ask(engine, {}, **options)["choices"][0]["message"]
    assert message["reasoning_content"] == text_of(list(THINK.tokens)[:2]) + " Enough."
    engine.say(said("a\n</think>\n\nb"))
    ask(engine, {"reasoning_budget_tokens": 50}, **options)
    engine.say(thinking(), ANSWER)
    message = ask(engine, {"reasoning_budget_message": " Stop."}, **options)["choices"][0]["message"]
    assert message["reasoning_content"].endswith(" Stop.")


def test_a_character_is_not_cut() -> None:
    engine = ScriptedEngine(Script(ids("🙂🙂🙂🙂"), repeat=True), ANSWER)
    thoughts = ask(engine, {"reasoning_budget_tokens": 3})["choices"][0]["message"]["reasoning_content"]
    assert thoughts and set(thoughts) == {"🙂"}


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_the_answers_limit_holds(max_tokens: int) -> None:
    engine = ScriptedEngine(thinking(), ANSWER)
    answer = ask(engine, {"reasoning_budget_tokens": 4, "max_tokens": max_tokens})
    assert answer["usage"]["completion_tokens"] <= max_tokens
    whole = 3 + len(ids(END)) + len(ids("\n\nHello you")) + 1
    assert answer["choices"][0]["finish_reason"] == ("stop" if max_tokens >= whole else "length")


def test_several_choices_and_other_settings() -> None:
    engine = ScriptedEngine(thinking(), thinking(), ANSWER, n_slots=2)
    answer = ask(engine, {"reasoning_budget_tokens": 4, "n": 2, "seed": 1, "cache_prompt": False, "priority": 3})
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["Hello you"] * 2
    for request in engine.requests[2:]:
        assert (request.priority, request.cache_prompt) == (4, True), "it goes on where it was, before others"


def test_a_stop_string_in_the_message_ends_the_text() -> None:
    engine = ScriptedEngine(thinking(), ANSWER)
    answer = ask(engine, {"reasoning_budget_tokens": 4, "reasoning_budget_message": " halt now", "stop": "halt"})
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] == ""
    assert engine.wait_idle()


def test_anthropic_budget() -> None:
    engine = ScriptedEngine(thinking(), ANSWER)
    body = {"messages": HI, "max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 5}}
    answer = post(make_client(engine), "/v1/messages", body)
    assert [block["type"] for block in answer["content"]] == ["thinking", "text"]
    assert answer["content"][0]["thinking"] == text_of(list(THINK.tokens)[:4])


def test_a_model_that_does_not_think_needs_no_budget() -> None:
    engine = ScriptedEngine(said("Hello you"))
    off = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_budget_tokens": 0}
    assert ask(engine, off)["choices"][0]["message"]["content"] == "Hello you"
    assert len(engine.requests) == 1 and engine.cancels == []


@pytest.mark.parametrize("field", ["reasoning_budget_tokens", "thinking_budget_tokens"])
@pytest.mark.parametrize("value", [-5, "x", 2**40])
def test_wrong_budgets(field: str, value: Any) -> None:
    status, error = post_error(make_client(ScriptedEngine(said("x"))), PATH, {"messages": HI, field: value})
    assert status == 400 and field in error["message"]


def test_tags_are_found_across_pieces() -> None:
    budget = ThoughtBudget(ThoughtRule(3, (1,)))
    for piece in ("<thi", "nk", ">"):
        assert not budget.is_over
        budget.add(piece)
    for piece in ("a", "</thin"):
        budget.add(piece)
    assert not budget.is_over
    budget.add("k>")
    for _ in range(9):
        budget.add("text")
    assert not budget.is_over


@pytest.mark.parametrize("batch", BATCHES)
def test_the_memory_of_the_sampler_goes_on_behind_thoughts(batch: int) -> None:
    """The scripted engine's memory behind a token is that token; a step may bring more than the budget has room for."""
    engine = ScriptedEngine(thinking(batch), ANSWER, n_slots=1)
    ask(engine, {"reasoning_budget_tokens": 3, "mirostat": 2})
    first, second = engine.requests
    *_, last_thought = second.prompt[: len(second.prompt) - len(ids(END))]
    assert (first.memory, second.memory) == ((), (float(last_thought),))


# the client says so


def control(client: Any, body: Any) -> Any:
    return post(client, "/v1/chat/completions/control", body)


def test_a_client_ends_the_thoughts() -> None:
    engine = ScriptedEngine(Script(THINK.tokens, delay=0.01, repeat=True), ANSWER)
    service = make_service(engine)
    with serving(service) as port:
        body = {"messages": HI, "stream": True, "reasoning_control": True}
        connection = open_request(port, PATH, body)
        head = read_until(connection, b'"reasoning_content"')
        chat_id = json.loads(head.split(b"data: ")[1].split(b"\n")[0])["id"]
        client = create_app(service, service.options).test_client()
        assert control(client, {"id": chat_id, "action": "reasoning_end"}) == {"success": True}
        assert b'"content":"Hello' in read_until(connection, b"[DONE]")
        missing = {"success": False, "message": "no active completion for this id"}
        assert control(client, {"id": chat_id, "action": "reasoning_end"}) == missing


def test_control_must_be_asked_for() -> None:
    engine = ScriptedEngine(Script(THINK.tokens, delay=0.01, repeat=True))
    service = make_service(engine)
    with serving(service) as port:
        connection = open_request(port, PATH, {"messages": HI, "stream": True})
        head = read_until(connection, b'"reasoning_content"')
        chat_id = json.loads(head.split(b"data: ")[1].split(b"\n")[0])["id"]
        refusal = {"success": False, "message": "reasoning control not enabled for this completion"}
        client = create_app(service, service.options).test_client()
        assert control(client, {"id": chat_id, "action": "reasoning_end"}) == refusal
        connection.close()
    assert engine.wait_idle()


def test_control_outside_of_thoughts_does_nothing() -> None:
    engine = ScriptedEngine(said("x\n</think>\n\nHello you"))
    answer = ask(engine, {"reasoning_control": True})
    assert answer["choices"][0]["message"]["content"] == "Hello you" and len(engine.requests) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "missing completion id"),
        ([], "missing completion id"),
        ({"id": "", "action": "reasoning_end"}, "missing completion id"),
        ({"id": "x"}, "unknown control action"),
        ({"id": "x", "action": "stop"}, "unknown control action"),
    ],
)
def test_control_errors(body: Any, message: str) -> None:
    status, error = post_error(make_client(ScriptedEngine(said("x"))), "/v1/chat/completions/control", body)
    assert (status, error["message"]) == (400, message)
