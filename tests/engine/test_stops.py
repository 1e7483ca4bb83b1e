from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.stops import Stops, plan_stops


def planned(n_prompt: int, boundaries: tuple[int, ...] = (), n_start: int = 0, n_common: int = 0, **sizes: int) -> Stops:
    return plan_stops(n_prompt, boundaries, n_start, n_common, **{"step": 1000, "gap": 10, "max_tail": 7, **sizes})


def test_the_first_message_the_last_one_and_the_answer() -> None:
    assert planned(500, (0, 300, 350, 450, 495)) == Stops((300, 450), frozenset({300}), 495)


def test_a_long_start_of_the_answer_is_a_stop_of_its_own() -> None:
    assert planned(500, (0, 300, 480)) == Stops((300, 480), frozenset({300}), None)


def test_a_prompt_without_messages_is_kept_before_its_last_token() -> None:
    assert planned(500) == Stops((), frozenset(), 499)
    assert planned(1, max_tail=0) == Stops((), frozenset(), None)


def test_a_follow_up_needs_nothing_but_the_start_of_its_answer() -> None:
    """The last message starts right behind what is known: reading two tokens again is no loss."""
    assert planned(500, (0, 300, 350, 402, 495), n_start=400) == Stops((), frozenset(), 495)


def test_a_short_last_message_can_be_sent_again_in_other_words() -> None:
    assert planned(500, (0, 300, 488, 495), n_start=320) == Stops((488,), frozenset(), 495)


def test_where_another_prompt_went_another_way() -> None:
    assert planned(500, n_common=128) == Stops((128,), frozenset({128}), 499)
    assert planned(500, n_start=125, n_common=128) == Stops((), frozenset(), 499)


def test_long_prompts_are_kept_on_the_way() -> None:
    assert planned(3500).at == (1000, 2000, 3000)
    assert planned(3500, (0, 900, 950, 2700, 3400, 3495)).at == (900, 950, 2000, 2700, 3400)
    assert planned(60, (0, 20, 22, 40, 55), step=0).at == (20, 40)


@pytest.mark.parametrize("known", [499, 498])
def test_nothing_to_keep_when_all_is_known(known: int) -> None:
    assert planned(500, n_start=known).at == ()


@given(
    st.integers(1, 300),
    st.lists(st.integers(0, 320)).map(sorted),
    st.data(),
    st.integers(0, 100),
    st.integers(1, 40),
    st.integers(0, 7),
)
def test_stops_lie_ahead_and_apart(
    n_prompt: int, boundaries: list[int], data: st.DataObject, step: int, gap: int, max_tail: int
) -> None:
    n_start = data.draw(st.integers(0, n_prompt - 1))
    n_common = data.draw(st.integers(n_start, n_prompt))
    stops = plan_stops(n_prompt, boundaries, n_start, n_common, step=step, gap=gap, max_tail=max_tail)
    assert all(n_start < stop < n_prompt for stop in stops.at)
    assert list(stops.at) == sorted(set(stops.at))
    assert all(stop - n_start >= gap for stop in stops.at[:-1])
    assert stops.shared <= set(stops.at)
    if stops.tail_from is not None:
        assert max(n_start, *stops.at, 0) < stops.tail_from < n_prompt <= stops.tail_from + max_tail
