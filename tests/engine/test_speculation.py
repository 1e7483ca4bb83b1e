"""Drafts change how many steps an answer takes, never the answer, whatever is drafted and whatever happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.request import FinishedEvent, GenerationRequest, SamplingParams, TokenEvent
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation import DraftOverride
from pyjet.engine.speculation_settings import SpeculationSettings
from tests.engine.core_run import Run, expected, request, requests
from tests.engine.fake_native import N_VOCAB

CANCEL = st.tuples(st.just("cancel"), st.integers(0, 12), st.sampled_from([None, 0, 2]))
SHORT, LONG = requests(20, (-1, 1, 3, 20)), requests(8, (-1, 30))
ACTIONS = st.lists(st.one_of(SHORT, LONG, st.integers(0, 6), CANCEL), min_size=6)
SETTINGS = st.builds(
    SpeculationSettings,
    mtp=st.booleans(),
    lookup=st.booleans(),
    n_max=st.integers(1, 7),
    n_min=st.sampled_from([0, 0, 2]),
    p_min=st.sampled_from([0.0, 0.0, 0.6]),
    sampling=st.sampled_from(["greedy", "probabilistic"]),
    lookup_min_match=st.integers(1, 3),
    lookup_size=st.sampled_from([2, 48]),
    lookup_min_hits=st.sampled_from([1, 1, 2]),
    draft_vocab=st.sampled_from([0, 64]),
    adaptive=st.booleans(),
)
SIZES = st.fixed_dictionaries(
    {
        "max_rows": st.sampled_from([5, 8, 64]),
        "n_slots": st.integers(1, 5),
        "page_tokens": st.integers(1, 5),
        "n_ctx_total": st.sampled_from([40, 60, 100, 400]),
        "host_bytes": st.sampled_from([0, 2_000, None]),
        "max_checkpoints": st.sampled_from([0, 3, 100]),
        "checkpoint_gap": st.sampled_from([1, 3]),
        "max_spec": st.sampled_from([2, 7]),
    }
)


def check_answers(run: Run, wanted: dict[str, GenerationRequest], cancelled: set[str]) -> None:
    for name, asked in wanted.items():
        tokens, reason = expected(asked, run.limits)
        last, got = run.last(name), run.tokens(name)
        assert isinstance(last, FinishedEvent)
        if last.reason == "cancelled":
            assert name in cancelled and got == tokens[: len(got)]
        else:
            assert (got, last.reason) == (tokens, reason)
            assert last.timings.predicted_n == len(tokens)
            assert last.n_context == len(asked.prompt) + len(tokens) - 1
        assert 0 <= last.timings.draft_n_accepted <= last.timings.draft_n
    run.check_all_ended()


@settings(max_examples=150, deadline=None)
@given(ACTIONS, SIZES, SETTINGS, st.sampled_from([0.0, 0.7, 1.0]))
def test_answers_are_those_without_drafts(
    actions: list, sizes: dict[str, int], drafts: SpeculationSettings, share_right: float
) -> None:
    run = Run(**{**sizes, "max_rows": max(sizes["max_rows"], sizes["n_slots"])}, speculation=drafts)
    run.native.mtp.share_right = share_right
    wanted, cancelled = run.play(actions)
    check_answers(run, wanted, cancelled)


def drafts_of(asked: dict[str, GenerationRequest], n: int, wrong_at: int) -> DraftOverride:
    """``n`` drafts for each, right ones but the one at ``wrong_at``."""
    answers = {name: expected(one)[0] for name, one in asked.items()}

    def override(sequence: Sequence, _: list[int], most: int) -> list[int]:
        n_done = len(sequence.generated)
        drafts = answers[sequence.request.id][n_done : n_done + n]
        drafts += [0] * (n - len(drafts))
        if wrong_at < n:
            drafts[wrong_at] = (drafts[wrong_at] + 1) % N_VOCAB
        return drafts

    return override


SAMPLED = SamplingParams(seed=4, repeat_penalty=1.3, presence_penalty=0.2, repeat_last_n=6)
KINDS = {
    "greedy": request("greedy", prompt=tuple(range(12)), max_tokens=20),
    "sampled": request("sampled", sampling=SAMPLED, max_tokens=20),
    "host": request("host", sampling=replace(SAMPLED, typical_p=0.9), n_probs=3, max_tokens=20),
}


@pytest.mark.parametrize("n", range(8))
@pytest.mark.parametrize("mtp", [False, True])
def test_any_number_of_drafts_and_the_first_wrong_one_anywhere(n: int, mtp: bool) -> None:
    for wrong_at in range(n + 1):
        drafts = SpeculationSettings(mtp=mtp, n_max=3, adaptive=False)
        run = Run(drafts_of(KINDS, n, wrong_at), max_spec=7, max_rows=64, n_ctx_total=120, speculation=drafts)
        run.submit(*KINDS.values())
        run.drain()
        check_answers(run, KINDS, set())
        steps = sum(isinstance(e, TokenEvent) for e in run.events["greedy"]) / len(run.native.steps)
        assert steps > 0.6 * (1 + min(wrong_at, n)), "right drafts save steps"


def test_all_right_drafts_give_all_tokens_at_once() -> None:
    asked = request("a", max_tokens=17)
    run = Run(drafts_of({"a": asked}, 7, 7), max_spec=7, max_rows=64)
    run.submit(asked)
    run.drain()
    assert run.tokens("a") == expected(asked)[0]
    # The prompt with the first token, then eight at a time.
    assert run.native.steps == [3, 8, 8]
    timings = run.last("a").timings
    assert (timings.draft_n, timings.draft_n_accepted) == (14, 14)
    assert run.core.counters().accepted_per_position == (2,) * 7
