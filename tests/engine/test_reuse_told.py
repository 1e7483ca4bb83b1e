"""What a finished request tells about the state it was continued from, and about what else was known."""

from __future__ import annotations

from pyjet.engine.request import FinishedEvent, Reuse
from tests.engine.core_run import Run, request
from tests.engine.fake_native import N_VOCAB

LONG = tuple(i * 5 % N_VOCAB for i in range(30))


def told(run: Run, name: str, prompt: tuple[int, ...], **fields: object) -> Reuse | None:
    run.submit(request(name, prompt=prompt, **fields))
    run.drain()
    event = run.last(name)
    assert isinstance(event, FinishedEvent)
    assert event.reuse is None or event.reuse.n_tokens == event.timings.cache_n
    return event.reuse


def test_a_new_prompt_was_continued_from_nothing() -> None:
    assert told(Run(), "a", LONG) == Reuse()


def test_the_next_turn_names_the_state_of_the_one_before() -> None:
    run = Run()
    told(run, "a", LONG[:20])
    answer = tuple(run.tokens("a"))
    known = 20 + len(answer) - 1  # the last token of an answer was never computed
    page = run.limits.page_tokens
    assert told(run, "b", (*LONG[:20], *answer, 1, 2, 3)) == Reuse(known, "turn", known // page * page)


def test_pages_that_are_known_without_a_state_are_told() -> None:
    run = Run(checkpoint_gap=1)
    told(run, "a", LONG[:20])
    assert told(run, "b", (*LONG[:10], 1, 2, 3)) == Reuse(0, "", 8), "pages of four tokens, and no state in them"
    assert told(run, "c", (*LONG[:10], 4, 5, 6)) == Reuse(8, "shared", 8), "the second prompt left one there"


def test_who_wants_nothing_known_is_told_nothing() -> None:
    run = Run()
    told(run, "a", LONG)
    assert told(run, "b", LONG, cache_prompt=False) is None


def test_a_preempted_request_tells_what_it_was_started_from() -> None:
    run = Run(n_slots=2, n_ctx_total=48, n_ctx_slot=48)
    told(run, "first", LONG[:12])
    known = told(run, "second", (*LONG[:12], 1))
    run.submit(
        request("a", prompt=(*LONG[:12], 2), max_tokens=30), request("b", prompt=(*LONG[:12], 3), max_tokens=30)
    )
    run.drain()
    event = run.last("b")
    assert isinstance(event, FinishedEvent) and event.timings.n_preemptions > 0
    assert event.reuse is not None and known is not None and event.reuse.n_tokens == event.timings.cache_n


def test_a_model_without_a_state_goes_on_in_the_pages() -> None:
    run = Run(has_state=False)
    told(run, "a", LONG[:20])
    assert told(run, "b", (*LONG[:10], 1, 2, 3)) == Reuse(10, "pages", 8)
