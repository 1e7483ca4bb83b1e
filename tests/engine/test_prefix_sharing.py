"""Prompts that begin alike: whatever is shared, kept, moved and forgotten, answers are those of a fresh engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.request import FinishedEvent, GenerationRequest, StartedEvent
from tests.engine.core_run import SAMPLING, Run, expected, request
from tests.engine.fake_native import N_VOCAB

# Prompts are made of few pieces, so that they share prefixes of all lengths and part at all places.
PIECES = [tuple((7 * i + 3 * j) % N_VOCAB for j in range(n)) for i, n in enumerate((9, 4, 1, 6, 13))]
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 12), st.sampled_from([None, 0, 2]))


@st.composite
def conversations(draw: st.DrawFn) -> GenerationRequest:
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3))
    ends = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
    return GenerationRequest(
        "",
        sum(pieces, ()),
        draw(SAMPLING),
        max_tokens=draw(st.sampled_from([1, 3, 8, -1])),
        id_slot=draw(st.sampled_from([-1, -1, 1])),
        priority=draw(st.integers(0, 1)),
        boundaries=tuple(ends) if draw(st.booleans()) else (),
        cache_prompt=draw(st.sampled_from([True, True, True, False])),
    )


ACTIONS = st.lists(st.one_of(conversations(), conversations(), conversations(), st.integers(0, 8), CANCEL), min_size=6)
SIZES = st.fixed_dictionaries(
    {
        "max_rows": st.sampled_from([5, 8, 64]),
        "n_slots": st.integers(1, 4),
        "page_tokens": st.integers(1, 5),
        "n_ctx_total": st.sampled_from([40, 60, 100, 400]),
        "n_extra_states": st.integers(1, 3),
        "host_bytes": st.sampled_from([0, 2_000, 20_000, None]),
        "max_checkpoints": st.sampled_from([0, 1, 3, 100]),
        "checkpoint_step": st.sampled_from([0, 4, 100]),
        "checkpoint_gap": st.sampled_from([1, 3]),
        "max_spec": st.sampled_from([0, 2, 7]),
        "has_state": st.booleans(),
    }
)


@settings(max_examples=150, deadline=None)
@given(ACTIONS, SIZES)
def test_answers_are_those_of_a_fresh_engine(actions: list, sizes: dict[str, int]) -> None:
    run = Run(**{**sizes, "max_rows": max(sizes["max_rows"], sizes["n_slots"])})
    wanted, cancelled = run.play(actions)
    for name, asked in wanted.items():
        tokens, reason = expected(asked, run.limits)
        last, got = run.last(asked.id), run.tokens(asked.id)
        assert isinstance(last, FinishedEvent)
        if last.reason == "cancelled":
            assert name in cancelled and got == tokens[: len(got)]
        else:
            assert (got, last.reason) == (tokens, reason)
            assert last.timings.cache_n + last.timings.prompt_n == len(asked.prompt) > last.timings.cache_n
    run.check_all_ended()


def again(run: Run, name: str, prompt: tuple[int, ...], **fields: object) -> int:
    """Send a prompt, check its answer, and say how many tokens were read of it."""
    asked = request(name, prompt=prompt, **fields)
    run.submit(asked)
    run.drain()
    assert run.tokens(name) == expected(asked, run.limits)[0]
    return run.last(name).timings.prompt_n


LONG = tuple(i * 5 % N_VOCAB for i in range(30))


def test_the_next_turn_reads_what_is_new() -> None:
    run = Run()
    assert again(run, "a", LONG[:20]) == 20
    answer = tuple(run.tokens("a"))
    # The last token of the answer was never computed.
    assert again(run, "b", (*LONG[:20], *answer, 1, 2, 3)) == 4


def test_the_same_prompt_reads_its_last_token() -> None:
    run = Run()
    again(run, "a", LONG)
    assert again(run, "b", LONG) == 1
    assert again(run, "c", LONG, cache_prompt=False) == len(LONG)


def test_another_answer_starts_where_the_first_one_did() -> None:
    """Templates drop earlier reasoning: what follows the start of the answer is different then."""
    run = Run(checkpoint_gap=1)
    again(run, "a", LONG[:20], boundaries=(0, 8, 18))
    assert again(run, "b", (*LONG[:18], 40, 41, 42)) == 3
    assert again(run, "c", (*LONG[:8], 40, 41, 42)) == 3, "the end of the first message is kept too"


def test_the_third_prompt_starts_where_the_first_two_part() -> None:
    run = Run(checkpoint_gap=1)
    again(run, "a", LONG[:20])
    assert again(run, "b", (*LONG[:10], 1, 2, 3)) == 13
    assert again(run, "c", (*LONG[:10], 4, 5, 6)) == 5, "pages of four tokens: eight of ten are known to be alike"


@pytest.mark.parametrize("n_common", [7, 8, 20])
def test_what_comes_together_is_read_once(n_common: int) -> None:
    run = Run(n_slots=4, checkpoint_gap=1, n_ctx_total=400)
    wanted = [request(f"r{i}", prompt=(*LONG[:n_common], i, 9, i)) for i in range(4)]
    run.submit(*wanted)
    run.drain()
    for asked in wanted:
        assert run.tokens(asked.id) == expected(asked)[0]
    read = [run.last(asked.id).timings.prompt_n for asked in wanted]
    assert read == [n_common + 3, 3, 3, 3]
    assert sum(run.native.steps) == sum(read) + 4 * 3


def test_who_waits_for_rows_goes_on_alone_when_they_do_not_come() -> None:
    run = Run(max_rows=4, checkpoint_gap=1)
    run.submit(request("a", prompt=LONG), request("b", prompt=(*LONG[:25], 1)))
    run.steps(2)
    assert isinstance(run.events["a"][0], StartedEvent) and not run.events["b"]
    run.note(run.core.cancel("a"))
    run.drain()
    assert run.tokens("b") == expected(request("b", prompt=(*LONG[:25], 1)))[0]
    assert run.last("b").timings.cache_n > 0, "what was read until then is not lost"


def test_a_cancelled_prompt_goes_on_where_it_was() -> None:
    run = Run(max_rows=4)
    run.submit(request("a", prompt=LONG))
    run.steps(3)
    run.note(run.core.cancel("a"))
    assert again(run, "b", LONG) == len(LONG) - 12


def test_pages_of_one_text_exist_once() -> None:
    run = Run(n_slots=2, checkpoint_gap=64)
    for name in "ab":
        run.submit(request(name, prompt=LONG))
    run.drain()
    # Both computed all rows, because they started together. Ten pages of two would be twenty.
    assert [run.last(name).timings.cache_n for name in "ab"] == [0, 0]
    assert run.core.counters().pages_used <= 12


@pytest.mark.parametrize("page_tokens", [1, 3, 4])
@pytest.mark.parametrize("max_rows", [4, 7, 64])
def test_every_length_cold_warm_and_moved(page_tokens: int, max_rows: int) -> None:
    """A, B, A for all lengths: answered alone, from the cache, and after A's pages have been on the host."""
    for n in range(1, 30):
        run = Run(page_tokens=page_tokens, max_rows=max_rows, n_slots=2, n_ctx_total=40, checkpoint_gap=1)
        one, other = LONG[:n], tuple(reversed(LONG))
        assert again(run, "cold", one, max_tokens=6) == n
        assert again(run, "warm", one, max_tokens=6) == 1
        again(run, "other", other, max_tokens=6)
        assert again(run, "moved", one, max_tokens=6) == 1
        assert run.core.counters().tokens_recomputed == 0


def test_nothing_is_kept_when_that_is_wanted() -> None:
    run = Run(max_checkpoints=0)
    again(run, "a", LONG)
    assert run.core.counters().pages_used == run.core.counters().checkpoints == 0
    assert again(run, "b", LONG) == len(LONG)


def test_without_host_memory_the_oldest_is_forgotten() -> None:
    run = Run(n_slots=1, n_ctx_total=40, host_bytes=0)
    again(run, "a", LONG)
    again(run, "b", tuple(reversed(LONG)))
    assert again(run, "c", LONG) > 1


def test_many_agents_in_a_pool_for_few() -> None:
    """Contexts of eight agents, of which five fit: turn by turn nothing is read twice."""
    run = Run(n_slots=8, n_ctx_slot=40, n_ctx_total=5 * 40, max_rows=16)
    histories = [tuple((i * 11 + j) % N_VOCAB for j in range(20)) for i in range(8)]
    n_new = [20] * 8
    for turn in range(3):
        wanted = [request(f"r{i}-{turn}", prompt=history, max_tokens=4) for i, history in enumerate(histories)]
        run.submit(*wanted)
        run.drain()
        for i, asked in enumerate(wanted):
            assert run.tokens(asked.id) == expected(asked)[0]
            assert run.last(asked.id).timings.prompt_n == n_new[i]
            histories[i] = (*histories[i], *run.tokens(asked.id), turn)
            n_new[i] = 2
    counters = run.core.counters()
    assert counters.tokens_recomputed == 0
    assert counters.swaps_out > 0 and counters.swaps_in > 0


def test_requests_that_differ_only_in_sampling_share_the_prompt() -> None:
    run = Run(n_slots=2, checkpoint_gap=1)
    asked = request("a", prompt=LONG)
    run.submit(asked, replace(asked, id="b", sampling=replace(asked.sampling, temperature=1.0, seed=3)))
    run.drain()
    assert [run.last(name).timings.prompt_n for name in "ab"] == [30, 1]
