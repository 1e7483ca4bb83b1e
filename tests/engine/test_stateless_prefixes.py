"""Models without a recurrent state go on anywhere in what was computed, to the token. See also test_prefix_sharing."""

from __future__ import annotations

import numpy as np
import pytest

from pyjet.engine.prefix_tree import Checkpoint, KeptPage, PrefixTree
from tests.engine.core_run import Run, expected, request
from tests.engine.fake_native import N_VOCAB
from tests.engine.test_prefix_sharing import LONG, again


def stateless(**limits: object) -> Run:
    return Run(has_state=False, **limits)


@pytest.mark.parametrize("page_tokens", [1, 3, 4, 16])
def test_every_place_to_part(page_tokens: int) -> None:
    """A second prompt reads exactly what is not the beginning of the first one's tokens."""
    for n in range(1, 28):
        run = stateless(page_tokens=page_tokens, n_ctx_total=96)
        again(run, "a", LONG[:28])
        other = (*LONG[:n], (LONG[n] + 1) % N_VOCAB, 3)
        assert again(run, "b", other) == 2
        assert again(run, "c", LONG[:n]) == 1, "a part of it"


def test_inside_an_answer() -> None:
    """Clients that rewrite the last answer read from the first token on that differs."""
    run = stateless()
    again(run, "a", LONG[:10], max_tokens=10)
    answer = tuple(run.tokens("a"))
    assert again(run, "b", (*LONG[:10], *answer[:7], (answer[7] + 1) % N_VOCAB, 5)) == 2


def test_prompts_are_known_while_they_are_answered() -> None:
    run = stateless(max_rows=40, n_ctx_total=200)
    run.submit(request("a", prompt=LONG, max_tokens=8))
    run.steps(3)
    second = request("b", prompt=(*LONG[:21], 1, 2))
    run.submit(second)
    run.drain()
    assert run.tokens("b") == expected(second, run.limits)[0]
    assert run.last("b").timings.prompt_n == 2


def test_prompts_are_read_without_a_stop() -> None:
    """Nothing is kept in between, so no step ends early for it."""
    run = stateless(max_rows=8, checkpoint_gap=1, checkpoint_step=4)
    run.submit(request("a", prompt=LONG, boundaries=(0, 5, 11, 20), max_tokens=1))
    run.drain()
    assert run.native.steps == [8, 8, 8, 6]


def test_shorter_prefixes_take_no_place() -> None:
    """Turn by turn one checkpoint remains, with the pages of the newest tokens."""
    run = stateless(n_ctx_slot=40)
    history = LONG[:6]
    for turn in range(4):
        asked = request(f"t{turn}", prompt=history, max_tokens=3)
        run.submit(asked)
        run.drain()
        history = (*history, *run.tokens(asked.id), turn)
    assert run.core.counters().checkpoints == 1
    assert run.core.counters().pages_used == -(-(len(history) - 2) // run.limits.page_tokens)


def test_a_preempted_answer_takes_nothing_with_it() -> None:
    """What it goes back to is forgotten when it ends, what was known before it came is not."""
    run = stateless(n_slots=2, n_ctx_total=60)
    again(run, "a", LONG[:12], max_tokens=1)
    run.submit(request("old", max_tokens=-1), request("young", prompt=(*LONG[:12], 1, 2), max_tokens=-1))
    while not run.core.counters().preemptions:
        run.step()
    run.note(run.core.cancel("young"))
    assert again(run, "b", LONG[:12]) == 1


def test_no_state_moves() -> None:
    """Pages go to the host and come back, to the token; the fake refuses every copy of a state."""
    run = stateless(n_slots=2, n_ctx_total=40, page_tokens=4)
    for name, prompt in (("a", LONG), ("b", tuple(reversed(LONG)))):
        again(run, name, prompt)
    assert again(run, "c", (*LONG[:22], 1, 2, 3)) == 3
    assert run.core.counters().swaps_in > 0


def test_a_full_pool_without_a_host() -> None:
    """What a prompt goes on from may keep the pages that it needs; then it is read again."""
    run = stateless(n_slots=1, n_ctx_total=40, host_bytes=0)
    again(run, "a", LONG, max_tokens=9)
    for n in (1, 2, 17, 29):
        again(run, f"b{n}", (*LONG[:n], *LONG[:5]), max_tokens=-1)


def test_prefixes_of_a_checkpoint() -> None:
    tree = PrefixTree(2)

    def put(*tokens: int) -> Checkpoint:
        data = np.array(tokens, np.int32)
        path, _ = tree.grow(data)
        node = path[-1] if path else tree.root
        rest = data[2 * node.depth :]
        checkpoint = Checkpoint(node, rest.tobytes(), len(data), "turn", KeptPage() if len(rest) else None)
        tree.add(checkpoint)
        return checkpoint

    one, two, three, other = put(1), put(1, 2), put(1, 2, 3), put(1, 2, 4)
    long = put(1, 2, 3, 5, 6)
    assert set(tree.prefixes(long)) == {one, two, three}
    assert set(tree.prefixes(other)) == {one, two}
    match = tree.match_anywhere(np.array([1, 2, 3, 5, 7], np.int32), 5)
    assert match.n_tokens == 4 and match.place is not None and match.place.tail is None
    match = tree.match_anywhere(np.array([1, 2, 3, 5, 6], np.int32), 3)
    assert match.n_tokens == 3 and match.place is not None and match.place.tail is not None
    assert tree.match_anywhere(np.array([2], np.int32), 1).place is None
