"""In how many pieces a cold prompt is read, and what the pieces cost: messages cut a conversation hardly anywhere.

A piece costs what a step costs: reading the weights, which is most of it for few rows, and something for each row.
"""

from __future__ import annotations

import pytest

from tests.engine.core_run import Run, request
from tests.engine.fake_native import N_VOCAB

N_MESSAGES, N_ROWS = 284, 512
PROMPT = tuple(i * i % N_VOCAB for i in range(N_MESSAGES * 21))
STARTS = tuple(range(0, len(PROMPT), 21))


def pieces(boundaries: tuple[int, ...], **limits: int) -> list[int]:
    """Rows of each step that reads the prompt in an engine that knows nothing."""
    sizes = {"n_slots": 1, "n_ctx_slot": 8192, "n_ctx_total": 8192, "page_tokens": 64, "max_rows": N_ROWS}
    run = Run(**{**sizes, "checkpoint_gap": 64, "max_checkpoints": 128, "max_spec": 7, **limits})
    run.submit(request("a", prompt=PROMPT, boundaries=boundaries, max_tokens=1))
    while run.core.has_work:  # without the checks between steps, which walk over everything
        _, batch = run.core.begin()
        assert batch is not None
        run.core.finish(run.native.step(batch))
    assert sum(run.native.steps) == len(PROMPT)
    return run.native.steps


def cost(rows_of_steps: list[int]) -> float:
    """In steps of one row: a step of 512 rows takes about four times as long, as on an H200 with 27B."""
    return sum(1 + 3 * n_rows / N_ROWS for n_rows in rows_of_steps)


@pytest.fixture(scope="module")
def plain() -> list[int]:
    return pieces(())


def test_a_plain_text_is_read_in_whole_steps(plain: list[int]) -> None:
    assert len(plain) <= -(-len(PROMPT) // N_ROWS) + 1


@pytest.mark.parametrize("step", [8192, 2048])
def test_short_messages_cost_a_conversation_hardly_anything(plain: list[int], step: int) -> None:
    found = pieces(STARTS, checkpoint_step=step)
    n_on_the_way = len(PROMPT) // step
    assert len(found) <= len(plain) + 2 + n_on_the_way, "the first message's end, the last one's start, and on the way"
    assert cost(found) <= 1.1 * cost(plain)


def test_a_state_for_every_message_would_cost_twice_as_much(plain: list[int]) -> None:
    """What --checkpoint-min-step 0 asks for, and what the numbers above would be if messages cut the prompt."""
    found = pieces(STARTS, checkpoint_step=0)
    assert len(found) > 5 * len(plain) and cost(found) > 1.9 * cost(plain)
