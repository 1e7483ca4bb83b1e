"""Reports about prompts that are read again, with the real engine behind the real server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from pyjet.engine.local import LocalEngine
from pyjet.engine.speculation_settings import NO_SPECULATION, SpeculationSettings
from tests.field_reports.force import CHAT, MESSAGES, tool
from tests.server.live import open_request, read_until, serving
from tests.server.real import has_library, tiny_engine, tiny_service

pytestmark = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")

RULES = " ".join(f"Rule {n}: keep number {n * 7919 % 1000} in mind." for n in range(40))
SYSTEM = f"You are a careful assistant. {RULES}"
WEATHER = tool("get_weather", ("city",), city={"type": "string"})


@pytest.fixture(scope="module", params=[NO_SPECULATION, SpeculationSettings(mtp=True, lookup=True)],
                ids=["without drafts", "with drafts"])  # fmt: skip
def engine(request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    with tiny_engine(speculation=request.param) as engine:
        yield engine


@pytest.fixture(scope="module")
def url(engine: LocalEngine) -> Iterator[str]:
    with serving(tiny_service(engine, slot_prompt_similarity=0.9)) as port:
        yield f"http://127.0.0.1:{port}"


def ask(url: str, body: dict[str, Any], path: str = CHAT) -> Any:
    response = requests.post(url + path, json={"temperature": 0, "max_tokens": 12, **body}, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


def chat(topic: str, *more: Any) -> dict[str, Any]:
    """A conversation whose system prompt nobody else has."""
    system = {"role": "system", "content": f"{topic}. {SYSTEM}"}
    return {"messages": [system, {"role": "user", "content": f"Tell me about {topic}."}, *more]}


def n_read(answer: Any) -> int:
    return int(answer["timings"]["prompt_n"])


def n_cached(answer: Any) -> int:
    return int(answer["timings"]["cache_n"])


def turn(answer: Any) -> dict[str, Any]:
    return {"role": "assistant", **{key: answer["choices"][0]["message"].get(key, "") for key in (
        "content", "reasoning_content")}}  # fmt: skip


def test_a_prefix_is_found_while_its_slot_is_busy(url: str) -> None:
    first = ask(url, chat("rivers"))
    host, port = url.removeprefix("http://").split(":")
    busy = open_request(int(port), CHAT, {**chat("rivers"), "stream": True, "id_slot": first.get("id_slot", 0),
                                          "max_tokens": 1500, "temperature": 0})  # fmt: skip
    read_until(busy, b"delta")
    other = ask(url, chat("rivers", {"role": "assistant", "content": "No."}, {"role": "user", "content": "Why?"}))
    busy.close()
    assert host and n_cached(other) > 0.8 * (n_read(first) + n_cached(first))


def test_the_number_of_a_slot_is_a_label(url: str) -> None:
    first = ask(url, {**chat("towers"), "id_slot": 0})
    ask(url, {**chat("bridges"), "id_slot": 0})
    again = ask(url, {**chat("towers"), "id_slot": 1})
    assert n_cached(again) > 0.8 * n_read(first)
    assert again["choices"][0]["message"] == first["choices"][0]["message"]


def test_unrelated_prompts_find_a_slot_whatever_the_similarity_asked_for(url: str) -> None:
    for topic in ("salt", "ships", "stars", "sheep", "silk", "snow"):
        assert ask(url, {"messages": [{"role": "user", "content": topic}], "max_tokens": 2})["usage"]


def test_a_side_request_does_not_throw_the_conversation_out(url: str) -> None:
    main = chat("gardens")
    first = ask(url, main)
    title = {"messages": [main["messages"][0], {"role": "user", "content": "A title for this chat, please."}]}
    ask(url, title)
    ask(url, {"messages": [{"role": "user", "content": "Something else entirely."}]})
    more = [turn(first), {"role": "user", "content": "And in winter?"}]
    second = ask(url, chat("gardens", *more))
    n_prompt = n_read(second) + n_cached(second)
    assert n_read(second) <= n_prompt - (n_read(first) + n_cached(first)) + 16


def test_a_new_message_of_the_user_keeps_what_the_template_kept(url: str) -> None:
    """The template drops earlier thoughts then: what stands before them is still there."""
    answer = {"role": "assistant", "content": "It is mild.", "reasoning_content": "Weather, so: look. " * 8}
    body = chat("weather", answer)
    ask(url, {**body, "continue_final_message": True, "add_generation_prompt": False})
    before = ask(url, chat("weather"))
    after = ask(url, chat("weather", answer, {"role": "user", "content": "Thanks!"}))
    assert n_cached(after) >= n_cached(before) > 0


def test_the_same_prompt_with_tools_ten_times(url: str) -> None:
    """Reuse changes nothing, one by one and six at a time."""
    body = {"messages": [{"role": "system", "content": SYSTEM},
                         {"role": "user", "content": "What is the weather in Paris?"}],
            "tools": [WEATHER], "max_tokens": 200}  # fmt: skip
    answers = [ask(url, body)]
    answers += [ask(url, body) for _ in range(3)]
    with ThreadPoolExecutor(6) as pool:
        answers += list(pool.map(lambda _: ask(url, body), range(6)))
    messages = [answer["choices"][0]["message"] for answer in answers]
    for message in messages:
        for call in message.get("tool_calls", []):
            call.pop("id")
    assert all(message == messages[0] for message in messages)
    assert "tool_calls" in messages[0]
    assert all(n_cached(answer) > 0 for answer in answers[1:])


def test_the_changing_line_of_claude_code_is_not_part_of_the_prompt(url: str) -> None:
    def body(number: str) -> dict[str, Any]:
        header = f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={number};"
        blocks = [{"type": "text", "text": header}, {"type": "text", "text": "Claude. " + SYSTEM}]
        return {"system": blocks, "messages": [{"role": "user", "content": "Hi"}]}

    first = ask(url, body("36ee5"), MESSAGES)["usage"]
    second = ask(url, body("9f01c"), MESSAGES)["usage"]
    assert second["input_tokens"] <= 16 < 100 < second["cache_read_input_tokens"]
    total = first["input_tokens"] + first["cache_read_input_tokens"]
    assert second["input_tokens"] + second["cache_read_input_tokens"] == total


def test_monitoring_answers_while_a_prompt_is_read(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    connection = open_request(int(port), "/completion", {"prompt": "word " * 1500, "stream": True, "n_predict": 1})
    for _ in range(5):
        for path in ("/health", "/slots", "/props"):
            assert requests.get(url + path, timeout=2).status_code == 200
    assert host and b'"stop":true' in read_until(connection, b"\r\n0\r\n\r\n")
    connection.close()
