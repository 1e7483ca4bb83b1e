"""How many drafts pay: against trying all numbers, and on prices with cliffs."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from pyjet.engine.acceptance import (
    BELIEFS,
    CONFIDENCES,
    FIRST_MATCH,
    MATCHES,
    N_CELLS,
    Acceptance,
    Counts,
    confidence_cells,
    match_cell,
)
from pyjet.engine.draft_costs import RESTS, DraftCosts
from pyjet.engine.draft_outlook import N_STEPS, DraftOutlook, best_cuts
from pyjet.engine.draft_policy import BETTER, Company, DraftPolicy
from pyjet.engine.draft_trials import DraftTrials
from pyjet.engine.step_costs import SIZES, StepCosts
from pyjet.engine.step_lessons import StepLessons, StepShape

ROWS = SIZES[:16]


def policy(seconds: list[float], passes: tuple[float, ...] = (0.0, 0.0, 0.0)) -> DraftPolicy:
    """``seconds`` of steps of ROWS."""
    return DraftPolicy(StepCosts(zip(ROWS, seconds)), DraftCosts(passes))


def flat(edge: int) -> list[float]:
    """Steps of up to ``edge`` rows take 10 ms, others 20 ms."""
    return [0.01 if n <= edge else 0.02 for n in ROWS]


def test_rows_that_cost_nothing_are_all_taken_up_to_the_edge() -> None:
    chances = [[0.9, 0.8, 0.7], [0.5, 0.2, 0.1]]
    assert policy(flat(4)).cut(chances, Company(2), 10, RESTS).lengths == [2, 0]
    assert policy(flat(6)).cut(chances, Company(2), 10, RESTS).lengths == [3, 1]
    assert policy(flat(8)).cut(chances, Company(2), 10, RESTS).lengths == [3, 3]
    assert policy(flat(8)).cut(chances, Company(2), 3, RESTS).lengths == [3, 0], "no more than there is room for"


def test_a_cliff_is_passed_when_enough_is_behind_it() -> None:
    certain = [[1.0] * 7]
    assert policy(flat(2)).cut(certain, Company(1), 10, RESTS).lengths == [7], "8 tokens in 20 ms, not 2 in 10"
    assert policy(flat(2)).cut([[0.9, 0.3, 0.1]], Company(1), 10, RESTS).lengths == [1]


def test_beside_a_prompt_a_draft_costs_a_row_of_it() -> None:
    linear = [0.01 + 0.001 * n for n in ROWS]
    assert policy(linear).cut([[0.2, 0.02]], Company(1, 19), 10, RESTS).lengths == [1]
    assert policy(linear).cut([[0.04, 0.02]], Company(1, 19), 10, RESTS).lengths == [0]


CHANCES = st.lists(st.lists(st.floats(0.01, 1.0), max_size=3), min_size=1, max_size=3)


@settings(deadline=None)
@given(CHANCES, st.lists(st.floats(0.0, 0.01), min_size=16, max_size=16), st.integers(0, 6), st.integers(-1, 3))
def test_no_other_numbers_give_more_tokens(rates: list, increments: list, room: int, n_draft: int) -> None:
    chances = []
    for each in rates:
        chances.append([])
        for rate in each:
            chances[-1].append(rate * (chances[-1][-1] if chances[-1] else 1.0))
    seconds = [0.01 + sum(increments[: i + 1]) for i in range(16)]
    tried, passes = policy(seconds, (0.001, 0.002, 0.001)), DraftCosts((0.001, 0.002, 0.001))
    costs = StepCosts(zip(ROWS, seconds))
    cut = tried.cut(chances, Company(len(chances)), room, n_draft)

    def rate_of(lengths: tuple[int, ...]) -> float:
        tokens = len(chances) + sum(sum(each[:n]) for each, n in zip(chances, lengths))
        return tokens / (costs.seconds(len(chances) + sum(lengths)) + passes.seconds(n_draft))

    lengths = product(*(range(len(each) + 1) for each in chances))
    rates_of_all = {each: rate_of(each) for each in lengths if sum(each) <= room}
    best = max(rates_of_all.values())
    assert sum(cut.lengths) <= room
    assert cut.rate == approx(rate_of(tuple(cut.lengths)))
    assert cut.rate * BETTER**6 >= best * (1 - 1e-9)


LONGEST = [0.0, 0.001, 0.002, 0.002]  # seconds that sequences of a context add, by the drafts of the longest one


def long_contexts(n_sequences: int) -> DraftPolicy:
    """Rows cost 0.1 ms each, a longer longest sequence more than that."""
    policy_ = policy([0.01 + 0.0001 * n for n in ROWS])
    of_rows = policy_.prices.of_rows()
    for _ in range(9):
        for n, extra in enumerate(LONGEST):
            n_rows = n_sequences * (1 + n)
            policy_.observe(Company(n_sequences), n_rows, 1 + n, float(of_rows[n_rows]) + extra)
    policy_.refresh()
    return policy_


def test_one_sequence_alone_is_not_made_longer() -> None:
    chances = [[0.9, 0.8, 0.01], [0.9, 0.8, 0.7]]
    alike = long_contexts(2).cut(chances, Company(2), 10, RESTS).lengths
    assert alike == [2, 3], "a third draft adds nothing to what two take"
    assert long_contexts(2).cut([[0.9, 0.09], [0.9, 0.15]], Company(2), 10, RESTS).lengths == [1, 1]


@settings(deadline=None)
@given(CHANCES, st.integers(0, 6))
def test_no_other_lengths_give_more_tokens_in_long_contexts(rates: list, room: int) -> None:
    chances = [np.cumprod(each).tolist() for each in rates]
    n_sequences = len(chances)
    tried = long_contexts(n_sequences)
    cut = tried.cut(chances, Company(n_sequences), room, RESTS)
    of_rows, of_widest = tried.step_prices(Company(n_sequences), room)

    def rate_of(lengths: tuple[int, ...]) -> float:
        tokens = n_sequences + sum(sum(each[:n]) for each, n in zip(chances, lengths))
        return tokens / (of_rows[sum(lengths)] + of_widest[max(lengths)])

    lengths = product(*(range(len(each) + 1) for each in chances))
    rates_of_all = {each: rate_of(each) for each in lengths if sum(each) <= room}
    best = max(rates_of_all.values())
    assert rate_of(tuple(cut.lengths)) >= cut.rate * (1 - 1e-9)
    assert cut.rate * BETTER >= best * (1 - 1e-9)
    drafts = np.zeros((1, n_sequences, 3))
    for row, each in zip(drafts[0], chances):
        row[: len(each)] = each
    cuts = best_cuts(drafts, tried.step_prices(Company(n_sequences), room), 0.0)
    assert cuts.rate == approx(best)
    whole = tuple(map(len, chances))
    of_whole = rates_of_all.pop(whole, 0.0)
    if cuts.take_all:
        assert of_whole == approx(best)
    else:
        assert max(rates_of_all.values(), default=0.0) >= of_whole * (1 - 1e-9)


def test_all_drafts_are_taken_when_they_were_worth_it_in_each_of_the_newest_steps() -> None:
    sure, unsure = [[0.9, 0.8], [0.9, 0.8]], [[0.9, 0.8], [0.9, 0.01]]
    outlook = DraftOutlook(long_contexts(2), 2)
    for step in range(2 * N_STEPS + 1):
        outlook.add(unsure if step == N_STEPS else sure, (), Company(2), 10)
        is_known = step >= N_STEPS - 1
        assert outlook.takes_all(1) == is_known, "first drafts are all sure"
        assert outlook.takes_all(2) == (step == N_STEPS - 1 or step == 2 * N_STEPS), step
    outlook.add(sure, (), Company(2), room=3)
    assert not outlook.takes_all(2), "there is no room for all"
    outlook.forget()
    assert not outlook.takes_all(1)


def test_passes_look_at_the_contexts_once() -> None:
    costs = StepCosts(zip(ROWS, flat(16)))
    tried = DraftPolicy(costs, DraftCosts((0.0, 0.001, 0.001)), attention_blocks=16)
    assert tried.pass_seconds(2) == approx(0.002)
    for _ in range(3):
        tried.observe(Company(4, context=9), 4, 1, 0.01 + 0.0032)
    tried.step_prices(Company(4, context=9), 10)
    assert tried.pass_seconds(2) == approx(0.002 + 2 * 0.0002)
    assert tried.pass_seconds(RESTS) == 0.0


def test_looking_at_the_contexts_is_no_part_of_what_a_draft_costs() -> None:
    costs, passes = StepCosts(zip(ROWS, flat(16))), DraftCosts((0.0, 0.001, 0.001))
    tried = DraftPolicy(costs, passes, attention_blocks=16)
    lessons = StepLessons(costs, passes, tried, DraftTrials(tried, DraftOutlook(tried, 2)), is_calibrated=True)
    deep = Company(4, context=9)
    for i in range(400):  # attention of the model takes 3.2 ms, so a pass takes 0.2 ms more than in empty contexts
        n_draft = i % 3
        lessons.shape = StepShape(4, 1, n_draft, deep, None)
        lessons.observe(0.01 + 0.0032 + n_draft * 0.0012)
        lessons.learn()
        tried.step_prices(deep, 10)
    assert passes.seconds(1) == approx(0.001, rel=0.03) and passes.seconds(2) == approx(0.002, rel=0.03)
    assert tried.pass_seconds(2) == approx(0.0024, rel=0.03)


def test_speeds_with_each_number_of_drafts() -> None:
    outlook = DraftOutlook(policy(flat(8), (0.0, 0.001, 0.001)), 2)
    outlook.add([[0.9, 0.8]], [], Company(1), 10)
    assert outlook.rates == approx([1 / 0.01, 1.9 / 0.011, 2.7 / 0.012])
    outlook.forget()
    outlook.add([[0.5, 0.1]], [[1.0, 1.0]], Company(2), 10)
    assert outlook.rates == approx([4 / 0.01, 4.5 / 0.011, 4.6 / 0.012])
    assert outlook.tokens == approx([4.0, 4.5, 4.6])


def test_speeds_are_those_of_all_steps_that_are_remembered() -> None:
    """In one of two steps the block knows that its second draft is wrong: 1 row less is verified there."""
    outlook = DraftOutlook(policy(flat(2)), 2)
    outlook.add([[1.0, 1.0]], [], Company(1), 10)
    outlook.add([[1.0, 0.0]], [], Company(1), 10)
    assert outlook.rates == approx([1 / 0.01, 2 / 0.01, (2 + 2) / (0.01 + 0.01)])
    for _ in range(N_STEPS):
        outlook.add([[0.0, 0.0]], [], Company(1), 10)
    assert outlook.rates == approx([1 / 0.01] * 3)


def test_prices_of_drafts_are_learned_from_steps_that_differ() -> None:
    true = (0.0005, 0.002, 0.001)
    costs = DraftCosts((0.0, 0.0001, 0.0001))
    for i in range(3000):
        n_draft = (RESTS, 0, 1, 3)[i % 4]
        parts = (n_draft > RESTS, n_draft > 0, max(0, n_draft - 1))
        hiccup = 0.5 if i % 50 == 0 else 0.0
        costs.observe(4, 4, n_draft, 0.01 + sum(price * n for price, n in zip(true, parts)) + hiccup)
    assert costs.seconds(1) == approx(0.0025, rel=0.1)
    assert costs.seconds(3) == approx(0.0045, rel=0.1)
    assert costs.seconds(RESTS) == 0.0


def test_prices_stay_while_nothing_differs() -> None:
    costs = DraftCosts((0.0, 0.002, 0.001))
    for seconds in (0.01, 0.02, 0.03, 0.04):
        costs.observe(4, 3, 2, seconds)
        costs.observe(8, 3, 1, 2 * seconds)
    assert costs.seconds(2) == approx(0.003)
    assert DraftCosts((), row_seconds=0.01).seconds(1) > 0.0, "before anything is known they are not free"


def test_kinds_of_drafts_have_cells_of_their_own() -> None:
    probabilities = (0.0, *CONFIDENCES, 1.0)
    cells = np.array(confidence_cells(np.array([[p] * 7 for p in probabilities])))
    assert (cells[:, 1:] == cells[:, 1:2]).all()
    confident = cells[:, :2].ravel().tolist()
    matched = [match_cell(n, position) for n in (1, *MATCHES, 99) for position in (0, 3)]
    assert len(set(confident)) == 2 * (len(CONFIDENCES) + 1)
    assert min(confident) == 7 and max(confident) < FIRST_MATCH <= min(matched)
    assert max(matched) == N_CELLS - 1 and len(BELIEFS) == N_CELLS
    assert match_cell(3, 3) == match_cell(6, 0), "drafts that were right are part of the match"


def test_acceptance_follows_what_happens() -> None:
    seen = Counts()
    one, other = Acceptance(seen), Acceptance(seen)
    for _ in range(60):
        one.add(0, False)
    assert one.rates[0] < 0.1
    assert other.rates[0] == BELIEFS[0] and one.rates[1] == BELIEFS[1]
    assert Acceptance(seen).rates[0] < 0.35, "who comes next expects what others saw"
    for _ in range(50):
        one.add(0, True)
    assert one.rates[0] > 0.6
    for i in range(400):
        one.add(0, i % 4 > 0)
    assert one.rates[0] == approx(0.75, abs=0.06)
