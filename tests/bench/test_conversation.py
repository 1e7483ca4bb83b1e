"""The script of bench.conversation and its figures."""

from __future__ import annotations

from typing import Any

import pytest

from bench import conversation_text as text
from bench.conversation_history import History, Step, steps
from bench.conversation_outcome import Turn, table, totals


def call(number: int) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "grep", "arguments": "{}"}}


def said(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "so", **({"tool_calls": list(calls)} if calls else {})}


def roles(history: History) -> list[str]:
    return [message["role"] for message in history.messages]


def test_the_script_has_a_retry_and_a_compaction() -> None:
    assert [step.name for step in steps(1, 10)] == [str(turn) for turn in range(1, 11)]
    assert [step.kind for step in steps(1, 5)] == ["ask", "go on", "go on", "ask", "go on"]
    assert [step.name for step in steps(2, 6)] == ["1", "2", "3", "4", "5", "5b", "6"]
    assert [step.turn for step in steps(3, 10) if step.kind == "compact"] == [7]


def test_tools_answer_and_a_user_speaks_when_none_was_called() -> None:
    history = History(1, 1)
    history.advance(Step(1, "ask"))
    history.add_answer(said(call(1), call(2)))
    history.advance(Step(2, "go on"))
    assert roles(history) == ["system", "user", "assistant", "tool", "tool"]
    assert [m["tool_call_id"] for m in history.messages[-2:]] == ["c1", "c2"]
    assert history.messages[-1]["content"] != history.messages[-2]["content"]
    history.add_answer(said())
    history.advance(Step(3, "go on"))
    assert roles(history)[5:] == ["assistant", "user"]


def test_a_user_who_interrupts_leaves_no_call_without_an_answer() -> None:
    history = History(1, 1)
    history.advance(Step(1, "ask"))
    history.add_answer(said(call(1)))
    history.advance(Step(4, "ask"))
    assert roles(history) == ["system", "user", "assistant", "tool", "user"]


def test_a_retry_has_another_message_in_the_last_ones_place() -> None:
    history = History(1, 2)
    history.advance(Step(4, "ask"))
    before = list(history.messages)
    history.add_answer(said(call(1)))
    history.advance(Step(5, "go on"))
    history.add_answer(said())
    history.advance(Step(5, "retry"))
    assert roles(history) == roles_of(before)
    assert history.messages[:-1] == before[:-1]
    assert history.messages[-1] != before[-1]


def roles_of(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def test_a_compaction_keeps_the_system_prompt_only() -> None:
    history = History(1, 3)
    system = history.messages[0]
    history.advance(Step(1, "ask"))
    history.add_answer(said(call(1)))
    history.advance(Step(7, "compact"))
    assert roles(history) == ["system", "user"]
    assert history.messages[0] == system
    assert "Summary" in history.messages[1]["content"]


def test_the_same_seed_says_the_same_and_another_differs_from_the_first_tool_on() -> None:
    assert text.tools(1) == text.tools(1)
    assert text.tools(1)[0] != text.tools(2)[0]
    assert text.system_prompt(1) != text.system_prompt(2)
    assert text.question(1, 1, "5") != text.question(1, 1, "5b")


def turn(agent: int, name: str, new: int, cached: int, processed: int, prompt: int = 100) -> Turn:
    return Turn(agent, name, "ask", prompt, new, cached, processed, generated=5, calls=1)


def test_totals() -> None:
    figures = totals([turn(1, "1", 100, 0, 100), turn(1, "2", 20, 78, 22)])
    assert figures["processed_per_new"] == pytest.approx(122 / 120, abs=1e-4)
    assert (figures["hit_rate"], figures["best_hit_rate"]) == (0.39, 0.4)
    assert figures["is_kept"] and figures["counted_otherwise"] == 0
    assert not totals([turn(1, "1", 50, 0, 100)])["is_kept"]


def test_a_server_that_counts_prompts_otherwise_is_told() -> None:
    assert totals([turn(1, "1", 100, 0, 99)])["counted_otherwise"] == 1


def test_the_table_is_in_the_order_of_the_script() -> None:
    lines = table([turn(2, "1", 1, 0, 1), turn(1, "10", 1, 0, 1), turn(1, "5b", 1, 0, 1), turn(1, "5", 1, 0, 1)])
    assert [line.split()[:2] for line in lines.splitlines()[1:]] == [["1", "5"], ["1", "5b"], ["1", "10"], ["2", "1"]]
