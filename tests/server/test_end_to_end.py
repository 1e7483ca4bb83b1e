"""The whole way with the real engine: a chat with tools, and clients that do not disturb each other."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from pyjet.engine.local import LocalEngine
from tests.server.live import open_request, read_until, serving
from tests.server.real import has_library, tiny_engine, tiny_service
from tests.server.scripted import tiny_tokenizer

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "City name"}},
            "required": ["city"],
        },
    },
}


pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with tiny_engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def url(engine: LocalEngine) -> Iterator[str]:
    with serving(tiny_service(engine)) as port:
        yield f"http://127.0.0.1:{port}"


def ask(url: str, path: str, body: dict[str, Any]) -> Any:
    response = requests.post(url + path, json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


def stream(url: str, path: str, body: dict[str, Any]) -> list[Any]:
    response = requests.post(url + path, json={**body, "stream": True}, timeout=120)
    assert response.status_code == 200, response.text
    payloads = [block.removeprefix("data: ") for block in response.text.split("\n\n") if block.startswith("data: ")]
    return [json.loads(payload) for payload in payloads if payload != "[DONE]"]


def weather_chat(city: str) -> dict[str, Any]:
    question = f"What is the weather in {city}?"
    return {
        "messages": [{"role": "user", "content": question}],
        "tools": [WEATHER],
        "temperature": 0,
        "max_tokens": 300,
    }


def test_a_chat_with_tools_calls_the_right_tool(url: str) -> None:
    answer = ask(url, "/v1/chat/completions", weather_chat("Paris"))
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls", choice
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}


def test_the_streamed_chat_is_the_same(url: str) -> None:
    message = ask(url, "/v1/chat/completions", weather_chat("Rome"))["choices"][0]["message"]
    texts = {"content": "", "reasoning_content": "", "arguments": ""}
    for event in stream(url, "/v1/chat/completions", weather_chat("Rome")):
        delta = event["choices"][0]["delta"]
        for key in ("content", "reasoning_content"):
            texts[key] += delta.get(key) or ""
        for call in delta.get("tool_calls", []):
            texts["arguments"] += call["function"].get("arguments", "")
    assert texts["content"] == message["content"]
    assert texts["reasoning_content"] == message.get("reasoning_content", "")
    assert texts["arguments"] == message["tool_calls"][0]["function"]["arguments"]


def test_thoughts_that_run_out_of_budget_go_on_as_from_the_same_text(url: str) -> None:
    body = {**weather_chat("Oslo"), "verbose": True}
    free = ask(url, "/v1/chat/completions", body)["choices"][0]["message"]
    cut = ask(url, "/v1/chat/completions", {**body, "reasoning_budget_tokens": 4, "reasoning_budget_message": " OK."})
    message, whole = cut["choices"][0]["message"], cut["__verbose"]
    assert message["reasoning_content"] != free["reasoning_content"]
    thoughts = message["reasoning_content"].removesuffix(" OK.")
    assert thoughts and free["reasoning_content"].startswith(thoughts)
    head, end, rest = whole["content"].partition("</think>")
    again = {"prompt": whole["prompt"] + head + end, "temperature": 0, "n_predict": 200}
    tags = {"preserved_tokens": ["<tool_call>", "</tool_call>"]}
    assert rest and ask(url, "/completion", {**again, **tags})["content"] == rest
    assert cut["usage"]["completion_tokens"] == cut["timings"]["predicted_n"] == whole["tokens_predicted"]


def test_concurrent_clients_get_what_each_gets_alone(url: str) -> None:
    bodies = [
        {"prompt": prompt, "seed": 40 + number, "temperature": 0.8, "n_predict": 48, "ignore_eos": True}
        for number, prompt in enumerate(("Once upon a time", "def fib(n):", "Paris is", "The list has 3 items:\n1."))
    ]
    alone = [ask(url, "/completion", body)["content"] for body in bodies]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda body: ask(url, "/completion", body)["content"], bodies))
        streamed = list(pool.map(lambda body: stream(url, "/completion", body), bodies))
    assert together == alone
    assert ["".join(event["content"] for event in events) for events in streamed] == alone


def test_choices_differ_and_can_be_repeated(url: str) -> None:
    body = {"prompt": "Once", "n": 2, "seed": 7, "temperature": 1.5, "n_predict": 24, "ignore_eos": True}
    first, second = ask(url, "/completion", body)
    assert first["content"] != second["content"]
    single = {**body, "n": 1, "seed": 8}
    assert ask(url, "/completion", single)["content"] == second["content"]


def test_probabilities_belong_to_the_tokens(url: str) -> None:
    body = {"prompt": "Once upon a", "temperature": 0, "n_predict": 4, "n_probs": 3}
    answer = ask(url, "/completion", body)
    entries = answer["completion_probabilities"]
    assert "".join(entry["token"] for entry in entries) == answer["content"]
    for entry in entries:
        assert entry["id"] == entry["top_logprobs"][0]["id"]
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] <= 0
        logs = [top["logprob"] for top in entry["top_logprobs"]]
        assert logs == sorted(logs, reverse=True)


def test_numbers_add_up(url: str) -> None:
    answer = ask(url, "/completion", {"prompt": [5, 6, 7, 8], "n_predict": 6, "ignore_eos": True})
    timings = answer["timings"]
    assert (answer["tokens_evaluated"], answer["tokens_predicted"], answer["tokens_cached"]) == (4, 6, 9)
    assert timings["cache_n"] + timings["prompt_n"] == 4 and timings["predicted_n"] == 6
    assert timings["prompt_ms"] > 0 and timings["predicted_ms"] > 0


def test_the_context_limit_ends_a_text(url: str) -> None:
    answer = ask(url, "/completion", {"prompt": [5] * 2040, "n_predict": 100, "ignore_eos": True})
    assert (answer["stop_type"], answer["truncated"]) == ("limit", True)
    assert answer["tokens_cached"] <= 2048


@pytest.mark.parametrize("streamed", [False, True])
def test_a_slot_is_free_soon_after_its_client_left(url: str, streamed: bool) -> None:
    port = int(url.rsplit(":", 1)[1])
    body = {"prompt": "Once", "n_predict": -1, "ignore_eos": True, "stream": streamed}
    connection: socket.socket = open_request(port, "/completion", body)
    if streamed:
        read_until(connection, b"data: ")
    time.sleep(0.3)
    connection.close()
    deadline = time.monotonic() + 1.0
    while any(slot["is_processing"] for slot in requests.get(url + "/slots", timeout=10).json()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("stop", ["\n", "the", ". "])
def test_counters_equal_the_sums_of_the_answers(engine: LocalEngine, url: str, stop: str) -> None:
    before = engine.counters()
    n_before = (before.predicted_tokens, before.prompt_tokens)
    body = {"prompt": "Once upon a time", "n_predict": 40, "stop": [stop], "seed": 3, "ignore_eos": True}
    answer = ask(url, "/completion", body)
    assert stop not in answer["content"]
    timings, after = answer["timings"], engine.counters()
    assert timings["predicted_n"] == answer["tokens_predicted"] == after.predicted_tokens - n_before[0]
    assert timings["prompt_n"] == after.prompt_tokens - n_before[1]


def test_a_saved_slot_is_restored(engine: LocalEngine, tmp_path: Path) -> None:
    service = tiny_service(engine, slot_save_path=f"{tmp_path}/")
    prompt = tiny_tokenizer().encode("The sea and the wind and the sun. " * 40)
    how = {"n_predict": 8, "temperature": 0, "id_slot": 1, "return_tokens": True}
    with serving(service) as port:
        url = f"http://127.0.0.1:{port}"
        prompt += ask(url, "/completion", {"prompt": prompt, **how})["tokens"]
        saved = ask(url, "/slots/1?action=save", {"filename": "sea.bin"})
        assert saved["n_written"] == (tmp_path / "sea.bin").stat().st_size
        assert ask(url, "/slots/1?action=erase", {})["n_erased"] == saved["n_saved"] == len(prompt) - 1
        first = ask(url, "/completion", {"prompt": prompt, **how})
        ask(url, "/slots/1?action=erase", {})
        assert ask(url, "/slots/1?action=restore", {"filename": "sea.bin"})["n_restored"] == saved["n_saved"]
        again = ask(url, "/completion", {"prompt": prompt, **how})
    assert (first["timings"]["cache_n"], again["timings"]["cache_n"]) == (0, saved["n_saved"])
    assert first["tokens"] == again["tokens"]
