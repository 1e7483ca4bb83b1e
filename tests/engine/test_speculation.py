"""Drafts change how many steps an answer takes, never the answer, whatever is drafted and whatever happens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.core import EngineCore
from pyjet.engine.request import FailedEvent, FinishedEvent, GenerationRequest, SamplingParams, TokenEvent
from pyjet.engine.sequence import Sequence
from pyjet.engine.speculation import DraftOverride
from pyjet.engine.speculation_settings import SpeculationSettings
from tests.engine.core_run import Run, expected, request, requests
from tests.engine.fake_native import LIMITS, N_VOCAB

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
        drafts = answers.get(sequence.request.id, [])[n_done : n_done + n]
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


# Samplers that the host runs: those that remember the answer, those that decide by chance, and others.
HOST_CHAINS = {
    "xtc": SamplingParams(seed=6, temperature=1.5, xtc_probability=0.5, xtc_threshold=0.02),
    "dry": SamplingParams(seed=7, temperature=1.5, dry_multiplier=4.0, dry_allowed_length=0),
    "mirostat 1": SamplingParams(seed=8, mirostat=1, mirostat_tau=2.0, mirostat_eta=0.5),
    "mirostat 2": SamplingParams(seed=9, mirostat=2, mirostat_tau=1.0, mirostat_eta=0.8),
    "adaptive_p": SamplingParams(seed=10, adaptive_target=0.3, adaptive_decay=0.7, samplers=("top_k", "adaptive_p")),
    "dynatemp": SamplingParams(seed=11, temperature=1.0, dynatemp_range=0.8, top_n_sigma=2.0),
}


@pytest.mark.parametrize("n", [1, 4, 7])
def test_host_chains_are_the_same_with_drafts(n: int) -> None:
    """Each row as without drafts: what a chain remembers advances with accepted tokens only."""
    asked = {name: request(name, (1, 2, 3, 1, 2), sampling=of, max_tokens=24) for name, of in HOST_CHAINS.items()}
    plain = {name: expected(wanted)[0] for name, wanted in asked.items()}
    for name, wanted in asked.items():
        chain = replace(wanted.sampling, xtc_probability=0.0, dry_multiplier=0.0, mirostat=0, adaptive_target=-1.0,
                        dynatemp_range=0.0, top_n_sigma=-1.0)  # fmt: skip
        assert expected(replace(wanted, sampling=chain))[0] != plain[name], "the chain matters here"
    for wrong_at in (0, n // 2, n):
        run = Run(drafts_of(asked, n, wrong_at), n_slots=3, max_spec=7, max_rows=64, n_ctx_total=120)
        run.submit(*asked.values())
        run.drain()
        check_answers(run, asked, set())
        assert {name: run.tokens(name) for name in asked} == plain
        assert run.native.n_sampled == 0


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


MTP = SpeculationSettings(mtp=True, n_max=3, adaptive=False)
BOTH = replace(MTP, lookup=True)
ROOMY = {"max_spec": 7, "max_rows": 64, "n_ctx_slot": 200, "n_ctx_total": 800}


@pytest.mark.parametrize("at", range(9))
def test_a_stop_anywhere_among_the_drafts(at: int) -> None:
    answer = expected(request(max_tokens=20))[0]
    asked = request("a", max_tokens=20, stop_ids=frozenset({answer[at]}))
    again = request("b", prompt=(*asked.prompt, *answer[: answer.index(answer[at]) + 1], 5), max_tokens=3)
    run = Run(drafts_of({"a": request("a", max_tokens=20), "b": again}, 7, 7), max_spec=7, max_rows=64)
    for each in (asked, again):
        run.submit(each)
        run.drain()
        assert (run.tokens(each.id), run.last(each.id).reason) == expected(each)
    # All that is kept of the answer is what belongs to it: the last token and the new one are read.
    assert run.last("b").timings.prompt_n == 2


@pytest.mark.parametrize("max_tokens", range(1, 10))
def test_no_draft_is_verified_that_cannot_be_a_token(max_tokens: int) -> None:
    asked = request("a", max_tokens=max_tokens)
    run = Run(drafts_of({"a": request("a", max_tokens=30)}, 7, 7), max_spec=7, max_rows=64)
    run.submit(asked)
    run.drain()
    assert (run.tokens("a"), run.last("a").reason) == expected(asked)
    assert sum(run.native.steps) == 3 + max_tokens - 1


def test_a_time_limit_between_two_drafts() -> None:
    now = [0.0]
    run = Run()
    asked = request("a", max_tokens=30, time_limit_ms=2500)
    run.core = EngineCore(run.limits, run.native, lambda: now[0], drafts_of({"a": request("a", max_tokens=30)}, 3, 3))
    run.submit(asked)
    while run.core.has_work:
        events, batch = run.core.begin()
        now[0] += 1.0
        run.note(events + run.core.finish(run.native.step(batch)))
    # Tokens of one step come at one time: the first one after the limit ends the answer.
    assert (run.last("a").reason, len(run.tokens("a"))) == ("limit", 1 + 2 * 4 + 1)


@pytest.mark.parametrize("share_right", [0.0, 0.6, 1.0])
def test_the_mtp_block_knows_all_tokens_of_a_sequence(share_right: float) -> None:
    """In one go, in chunks, behind a prefix, beside others: its KV is that of the tokens before each draft."""
    run = Run(**{**ROOMY, "max_rows": 20}, speculation=MTP)
    run.native.mtp.share_right = share_right
    prompt = tuple(i * 7 % N_VOCAB for i in range(50))
    wanted = {
        "long": request("long", prompt=prompt, max_tokens=40),
        "short": request("short", sampling=SAMPLED, max_tokens=30),
        "again": request("again", prompt=(*prompt, 3, 4, 5), max_tokens=20),
    }
    for name in ("long", "short"):
        run.submit(wanted[name])
    run.drain()
    run.submit(wanted["again"])
    run.drain()
    check_answers(run, wanted, set())
    # A prefix's last row was computed with the token that came then; it is the only one.
    assert run.native.mtp.n_passes > 0 and run.native.mtp.n_stale <= run.native.mtp.n_passes
    counters = run.core.counters()
    assert counters.draft_tokens_mtp == counters.draft_tokens > 0
    if share_right == 1.0:
        timings = run.last("long").timings
        assert timings.draft_n_accepted == timings.draft_n == 9 * 3 + 2


@pytest.mark.parametrize("sampling", ["greedy", "probabilistic"])
def test_drawn_drafts_are_right_where_the_target_draws_the_same(sampling: str) -> None:
    run = Run(**ROOMY, speculation=replace(MTP, sampling=sampling))
    run.native.mtp.share_right = 1.0
    run.submit(request("a", sampling=SamplingParams(seed=3, temperature=1.2), max_tokens=150))
    run.drain()
    timings = run.last("a").timings
    share = timings.draft_n_accepted / timings.draft_n
    # Rows that the fake leaves to the host end what the block knows, so not all are right.
    assert share > 0.75 if sampling == "probabilistic" else share < 0.6


def test_a_fixed_number_is_drafted_in_each_step() -> None:
    for n in (1, 2, 5):
        run = Run(**ROOMY, speculation=replace(MTP, n_max=n))
        run.submit(request("a", max_tokens=60))
        run.drain()
        assert set(run.native.steps[1 : -n - 1]) == {1 + n}
        assert run.native.mtp.n_passes >= n * (len(run.native.steps) - n - 2)


def test_improbable_drafts_and_short_ones_are_left_out() -> None:
    plain, sure = (Run(**ROOMY, speculation=replace(MTP, p_min=p_min)) for p_min in (0.0, 0.6))
    for run in (plain, sure):
        run.native.mtp.share_right = 0.5
        run.submit(request("a", max_tokens=150))
        run.drain()
    shares = [t.draft_n_accepted / t.draft_n for t in (run.last("a").timings for run in (plain, sure))]
    assert shares[1] > shares[0] + 0.1
    run = Run(**ROOMY, speculation=replace(MTP, p_min=0.6, n_min=2))
    run.native.mtp.share_right = 0.5
    run.submit(request("a", max_tokens=150))
    run.drain()
    assert 2 not in run.native.steps and {1, 3} < set(run.native.steps)


def test_what_was_said_before_is_looked_up() -> None:
    drafts = SpeculationSettings(lookup=True)
    answer = expected(request("a", max_tokens=40), replace(LIMITS, n_ctx_slot=200, n_ctx_total=800))[0]
    prompt = (*answer[:30], 9, 9, 1, 2, 3)  # the fake model goes on otherwise than it did, but some of it is copied
    run = Run(**ROOMY, speculation=drafts)
    echo = run.native.answer = lambda history: answer[(len(history) - len(prompt)) % 30]
    asked = request("a", prompt=prompt, max_tokens=30)
    run.submit(asked)
    run.drain()
    assert run.tokens("a") == [echo([0] * (len(prompt) + i)) for i in range(30)]
    counters = run.core.counters()
    assert counters.draft_tokens_lookup_accepted > 20 and counters.draft_tokens_mtp == 0
    assert len(run.native.steps) < 12


def test_preempted_in_the_middle_of_drafts() -> None:
    for drafts in (MTP, BOTH):
        run = Run(n_slots=2, n_ctx_total=52, max_spec=7, max_rows=16, speculation=drafts)
        wanted = {
            "a": request("a", max_tokens=-1),
            "b": request("b", max_tokens=-1, sampling=SamplingParams(seed=5, repeat_penalty=1.2)),
        }
        run.submit(*wanted.values())
        run.drain()
        check_answers(run, wanted, set())
        counters = run.core.counters()
        assert counters.preemptions > 0 and counters.tokens_recomputed == 0


@pytest.mark.parametrize("page_tokens", [1, 3, 4])
def test_every_length_cold_warm_and_moved(page_tokens: int) -> None:
    """A, B, A: what is kept of an answer with drafts is what is kept without, on the device and on the host."""
    long = tuple(i * 5 % N_VOCAB for i in range(30))
    for n in range(1, 30):
        sizes = {"page_tokens": page_tokens, "max_rows": 12, "n_slots": 2, "n_ctx_total": 40, "checkpoint_gap": 1}
        run = Run(**sizes, max_spec=7, speculation=BOTH)
        for name, prompt in (("cold", long[:n]), ("warm", long[:n]), ("other", long[::-1]), ("moved", long[:n])):
            asked = request(name, prompt=prompt, max_tokens=6)
            run.submit(asked)
            run.drain()
            assert run.tokens(name) == expected(asked, run.limits)[0]
            assert name == "other" or run.last(name).timings.prompt_n == (n if name == "cold" else 1)
        follow = request("follow", prompt=(*long[:n], *run.tokens("moved"), 7), max_tokens=2)
        if len(follow.prompt) < run.limits.n_ctx_slot:
            run.submit(follow)
            run.drain()
            assert run.tokens("follow") == expected(follow, run.limits)[0]
            assert run.last("follow").timings.prompt_n <= 7


def test_a_slot_is_saved_and_restored_in_the_middle_of_a_conversation() -> None:
    run, other = (Run(**ROOMY, speculation=BOTH) for _ in range(2))
    asked = request("a", prompt=tuple(range(20)), max_tokens=15)
    run.submit(asked)
    run.drain()
    snapshot = run.core.slot_contents.snapshot(2)
    assert snapshot is not None and len(snapshot.tokens) == 34
    assert snapshot.tokens.tolist() == [*asked.prompt, *run.tokens("a")[:-1]]
    assert other.core.slot_contents.put(1, snapshot)
    follow = request("b", prompt=(*asked.prompt, *run.tokens("a"), 4), max_tokens=9)
    other.submit(follow)
    other.drain()
    assert other.tokens("b") == expected(follow, other.limits)[0]
    assert other.last("b").timings.prompt_n == 2


def test_cancelled_between_two_steps_with_drafts() -> None:
    asked = request("a", max_tokens=-1)
    for n_steps in range(2, 8):
        run = Run(drafts_of({"a": asked}, 5, n_steps % 5), max_spec=7, max_rows=64)
        run.submit(asked)
        run.steps(n_steps)
        run.note(run.core.cancel("a", keep_tokens=2))
        run.core.check()
        answer = expected(asked)[0]
        assert run.last("a").n_context == 3 + 2 - 1
        follow = request("b", prompt=(*asked.prompt, *answer[:6], 9), max_tokens=4)
        run.submit(follow)
        run.drain()
        assert run.tokens("b") == expected(follow)[0]


def test_an_answer_that_needs_logits_is_drafted_too() -> None:
    run = Run(**ROOMY, speculation=MTP)
    run.native.mtp.share_right = 1.0
    asked = request("a", n_probs=2, max_tokens=30)
    run.submit(asked)
    run.drain()
    assert run.tokens("a") == expected(asked, run.limits)[0]
    probs = [event.probs for event in run.events["a"] if isinstance(event, TokenEvent)]
    assert all(each is not None and len(each.top) == 2 for each in probs)
    assert run.last("a").timings.draft_n_accepted == run.last("a").timings.draft_n > 20


def test_one_failing_request_among_drafts() -> None:
    banned = SamplingParams(logit_bias=tuple((i, float("-inf")) for i in range(N_VOCAB)))
    run = Run(**ROOMY, speculation=BOTH)
    run.submit(request("a", max_tokens=20), request("bad", sampling=banned), request("c", sampling=SAMPLED))
    run.drain()
    assert isinstance(run.last("bad"), FailedEvent)
    assert run.tokens("a") == expected(request("a", max_tokens=20), run.limits)[0]
    assert run.tokens("c") == expected(request("c", sampling=SAMPLED), run.limits)[0]


def test_the_mtp_block_rests_when_drafts_do_not_pay() -> None:
    """Steps that take twice as long with two rows, and drafts that are never right."""
    seconds = ((1, 0.01), (2, 0.02), (4, 0.04), (8, 0.08))
    run = Run(
        **{**ROOMY, "n_ctx_slot": 900, "n_ctx_total": 1800}, speculation=replace(BOTH, adaptive=True),
        step_seconds=seconds, draft_seconds=(0.0001, 0.001, 0.001),
    )  # fmt: skip
    run.native.step_us = lambda rows: 1e4 * rows
    run.native.mtp.share_right = 0.0
    run.submit(request("a", max_tokens=800))
    run.drain()
    assert run.tokens("a") == expected(request("a", max_tokens=800), run.limits)[0]
    assert np.mean(run.native.steps[100:]) < 1.03
    assert run.native.mtp.n_steps < 0.3 * len(run.native.steps), "not even its KV is computed"
    assert 0 < run.native.mtp.n_passes < 120, "it is tried once in a while"


def test_no_more_rows_want_tokens_than_the_mtp_block_takes() -> None:
    """The fake refuses such steps; with very many sequences there are no drafts at all."""
    for n_slots, is_drafting in ((20, True), (40, False)):
        run = Run(n_slots=n_slots, max_spec=7, max_rows=400, n_ctx_total=40 * n_slots, speculation=MTP)
        wanted = {f"r{i}": request(f"r{i}", prompt=(i, 2, 3), max_tokens=12) for i in range(n_slots)}
        run.submit(*wanted.values())
        run.drain()
        check_answers(run, wanted, set())
        assert (run.core.counters().draft_tokens > 0) == is_drafting


def test_prompts_keep_their_rows_beside_drafts() -> None:
    run = Run(max_rows=8, max_spec=7, n_ctx_total=120, speculation=replace(MTP, n_max=7))
    run.submit(request("a", max_tokens=30), request("b", prompt=(1, 1, 1), max_tokens=30))
    run.steps(3)
    run.submit(request("c", prompt=tuple(range(30)), max_tokens=1))
    for _ in range(12):
        run.step()
    assert run.tokens("c"), "three rows or more in each step"
