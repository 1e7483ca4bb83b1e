"""Every request tells the engine where its messages start, however its prompt was given."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pyjet.server.prompts import message_starts
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import ids, make_client, post, said, tiny_tokenizer

CHAT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
START = tiny_tokenizer().token_id("<|im_start|>")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/completion", {"prompt": CHAT}),
        ("/completion", {"prompt": ids(CHAT)}),
        ("/v1/completions", {"prompt": CHAT}),
    ],
)
def test_starts_of_messages(path: str, body: dict[str, Any]) -> None:
    engine = ScriptedEngine(said("Hello"))
    post(make_client(engine), path, body)
    [request] = engine.requests
    assert len(request.boundaries) == 2 and request.boundaries[0] == 0
    assert [request.prompt[at] for at in request.boundaries] == [START, START]


def test_several_prompts_and_choices_have_their_own() -> None:
    engine = ScriptedEngine(said("x"))
    post(make_client(engine), "/completion", {"prompt": ["plain", CHAT], "n": 2})
    assert sorted(len(request.boundaries) for request in engine.requests) == [0, 0, 2, 2]


def test_a_long_prompt_costs_little() -> None:
    prompt = [7, 8, 9, 5] * 25_000
    begin = time.perf_counter()
    assert message_starts(prompt, 5) == tuple(range(3, 100_000, 4))
    assert time.perf_counter() - begin < 0.5
    assert message_starts(prompt, None) == message_starts([], 5) == ()
