"""The line of the log for a request says which state its prompt was continued from, and why not a later one."""

from __future__ import annotations

import logging

import pytest

from pyjet.engine.request import FinishedEvent, Reuse, Timings
from pyjet.server.app import create_app
from pyjet.server.request_log import request_line
from tests.server.real import has_library, tiny_engine, tiny_service
from tests.server.scripted import post


@pytest.mark.parametrize(
    ("reuse", "text"),
    [
        (None, "ms; answer"),
        (Reuse(), "ms (nothing of it is known); answer"),
        (Reuse(0, "", 640), "ms (its first 640 tokens are known but no state in them was kept); answer"),
        (
            Reuse(80, "turn", 64),
            "ms (continued from the state of a conversation at 80; nothing is known behind it); answer",
        ),
        (Reuse(80, "pages", 64), "continued from the pages of an earlier prompt at 80; nothing is known behind it"),
        (
            Reuse(80, "shared", 256),
            "ms (continued from the state that conversations share at 80; its first 256 tokens are known but no later "
            "state was kept); answer",
        ),
    ],
)
def test_the_state_of_a_prompt(reuse: Reuse | None, text: str) -> None:
    timings = Timings(reuse.n_tokens if reuse is not None else 0, 40, 12.3, 2, 10.0)
    assert text in request_line(FinishedEvent("r", "eos", 2, timings, reuse=reuse))


@pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
def test_a_conversation_that_only_grows(caplog: pytest.LogCaptureFixture) -> None:
    """Every turn goes on where the one before ended, and its line says so."""
    messages = [{"role": "system", "content": "You are short. " * 20}, {"role": "user", "content": "Hello"}]
    with tiny_engine() as engine, caplog.at_level(logging.INFO, logger="pyjet.server.generation"):
        service = tiny_service(engine, chat_template_kwargs={"enable_thinking": False})
        client = create_app(service, service.options).test_client()
        for _ in range(3):
            answer = post(client, "/v1/chat/completions", {"messages": messages, "max_tokens": 12, "temperature": 0})
            messages += [answer["choices"][0]["message"], {"role": "user", "content": "Go on"}]
    first, *later = [record.getMessage() for record in caplog.records]
    assert "(nothing of it is known)" in first
    assert len(later) == 2 and all("(continued from the state of a conversation at " in line for line in later)
