"""Every request tells the engine where its messages start, however its prompt was given."""

from __future__ import annotations

from collections.abc import Sequence
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


class Counted(Sequence[int]):
    """A prompt that counts how often one of its tokens is looked at."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens, self.reads = tokens, 0

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return self._tokens[index]


def test_a_prompt_is_looked_through_a_fixed_number_of_times() -> None:
    prompt = Counted([7, 8, 9, 5] * 25_000)
    assert message_starts(prompt, 5) == tuple(range(3, 100_000, 4))
    assert 0 < prompt.reads <= 3 * len(prompt) + 3, prompt.reads
    assert message_starts(prompt, None) == message_starts([], 5) == ()
