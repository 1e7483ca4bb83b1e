"""Conversations under pressure: their figures, and what counts as a difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.pressure import differences, pool_settings, summarise
from bench.pressure_talk import EngineFailure, Sizes, Talk, make_talks, play
from pyjet.engine.counters import Counters
from pyjet.engine.request import Timings
from tests.scripted_engine import Script, ScriptedEngine

SIZES = Sizes(first=5, more=2, answer=3, rounds=2)


def answered(*answers: list[int]) -> Talk:
    talk = make_talks(1, SIZES, 200, seed=1)[0]
    talk.answers = list(answers)
    return talk


def test_the_pool_holds_the_full_length_of_some() -> None:
    assert SIZES.longest == 13
    settings = pool_settings(Path("m.gguf"), Sizes(100, 10, 20, 3), n_agents=8, n_held=5)
    assert (settings.n_slots, settings.n_ctx_slot, settings.n_pages) == (8, 192, 15)


def test_conversations_begin_differently_and_every_other_one_is_sampled() -> None:
    talks = make_talks(4, SIZES, 200, seed=1)
    assert [[len(turn) for turn in talk.turns] for talk in talks] == [[5, 2]] * 4
    assert len({talk.turns[0][0] for talk in talks}) == 4
    assert [talk.sampling.temperature > 0 for talk in talks] == [False, True, False, True]


def test_a_conversation_goes_on_from_its_answers() -> None:
    engine = ScriptedEngine(Script([7, 8, 9]), Script([4, 5, 6]))
    talk = make_talks(1, SIZES, 200, seed=1)[0]
    play(engine, [talk])
    assert talk.answers == [[7, 8, 9], [4, 5, 6]]
    assert talk.history == [*talk.turns[0], 7, 8, 9, *talk.turns[1], 4, 5, 6]
    assert [r.prompt for r in engine.requests] == [tuple(talk.turns[0]), tuple(talk.history[:10])]
    assert talk.again().history == []


def test_a_failed_request_is_an_error() -> None:
    engine = ScriptedEngine(Script([7], fail_after=1, fail_message="out of order"))
    with pytest.raises(EngineFailure, match="out of order"):
        play(engine, make_talks(1, SIZES, 200, seed=1))


def test_differences_name_the_first_token() -> None:
    same = answered([1, 2, 3], [4, 5, 6])
    assert differences([same], [answered([1, 2, 3], [4, 5, 6])]) == []
    assert differences([same, same], [same, answered([1, 2, 3], [4, 9, 6])]) == [
        "conversation 1, round 1: from token 1 of 3 on"
    ]
    assert differences([same], [answered([1, 2])]) == ["conversation 0, round 0: from token 2 of 2 on"]


def test_counters_that_an_engine_does_not_have_are_left_empty() -> None:
    talk = answered([1, 2, 3])
    talk.timings = [Timings(cache_n=0, prompt_n=5, predicted_n=3), Timings(cache_n=7, prompt_n=3, predicted_n=3)]
    figures = summarise([talk], SIZES, Counters(preemptions=2, tokens_recomputed=4))
    assert (figures["preemptions"], figures["tokens_recomputed"]) == (2, 4)
    assert (figures["prompt_tokens_new"], figures["prompt_tokens_read"], figures["prompt_tokens_reused"]) == (8, 8, 7)
