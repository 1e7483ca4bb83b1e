"""Trials of other numbers of drafts: what they find, and that they lose little."""

from __future__ import annotations

import pytest

from bench.adaptive_share import RATIOS
from pyjet.engine.draft_costs import DraftCosts
from pyjet.engine.draft_outlook import DraftOutlook
from pyjet.engine.draft_policy import Company, DraftPolicy
from pyjet.engine.draft_trials import FIRST_BUDGET, N_LONGEST, N_MEASURED, REACH, SAVED, DraftTrials
from pyjet.engine.step_costs import StepCosts
from tests.engine.h200_prices import UNSURE, PricedCard, adaptive_share, fixed_speeds

SEEDS = range(3)
CELLS = [(n, context, name) for context in (200, 23_000, 100_000) for n in (1, 4, 8) for name in RATIOS]


def shares(n_seqs: int, context: int, name: str, sure: float = UNSURE) -> tuple[float, float]:
    """Mean speed over the best fixed number's, and over that without drafts."""
    found = [adaptive_share(n_seqs, context, RATIOS[name], seed, sure) for seed in SEEDS]
    return sum(a for a, _ in found) / len(found), sum(b for _, b in found) / len(found)


@pytest.mark.parametrize(("n_seqs", "context", "name"), CELLS)
def test_the_best_fixed_number_is_found_within_the_steps_of_the_benchmark(n_seqs: int, context: int, name: str) -> None:
    of_best, of_none = shares(n_seqs, context, name)
    assert of_best >= 0.985
    assert of_none >= 0.98


@pytest.mark.parametrize("cell", [(n, context, "high") for context in (23_000, 100_000) for n in (4, 8)])
def test_lengths_that_differ_without_a_reason_cost_nothing(cell: tuple[int, int, str]) -> None:
    """The MTP block seems to know which drafts are good; the longest sequence decides how wide attention is for all."""
    of_best, _ = shares(*cell, sure=1.0)
    assert of_best >= 0.985


@pytest.mark.parametrize("cell", [(4, 23_000, "high"), (4, 100_000, "high")])
def test_without_trials_it_is_not_found(cell: tuple[int, int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DraftTrials, "consider", lambda *_: None)
    of_best, _ = shares(*cell)
    assert of_best < 0.97


@pytest.mark.parametrize("name", RATIOS)
def test_in_the_long_run_trials_lose_next_to_nothing(name: str) -> None:
    card = PricedCard(4, 23_000, RATIOS[name], seed=0, n_text=8000)
    depths = []
    for _ in range(2):
        card.run_steps(card.agents, 400)
        depths.append(card.agents[0].sequence.n_computed)
    assert card.speed(slice(400, None)) > 0.99 * max(fixed_speeds(4, sum(depths) // 2, RATIOS[name]).values())


class Bench:
    """Trials beside one sequence, of whose drafts each is right with ``chance`` if all before it are.

    ``seconds``: of all steps, up to 8 rows or with more than 2. A pass takes ``of_pass`` more.
    """

    def __init__(
        self, chance: float, seconds: float, behind_2_rows: float | None = None, of_pass: float = 0.0
    ) -> None:
        self.seconds = [seconds] * 3 + [behind_2_rows or seconds] * 6  # by rows
        self.chances = [chance**i for i in range(1, 8)]
        self.company = Company(1)
        self.policy = DraftPolicy(StepCosts([(n, 0.01) for n in range(1, 9)]), DraftCosts((0.0, of_pass, of_pass)))
        self.outlook = DraftOutlook(self.policy, 7)
        self.trials = DraftTrials(self.policy, self.outlook)
        self.tried: list[int] = []  # drafts of each step of a trial
        self.lost = 0.0  # steps

    def step(self, best: int) -> None:
        trial = self.trials.begin_step(is_possible=True)
        n = trial.n_draft if trial else best
        seconds, tokens = self.seconds[n + 1], 1.0 + sum(self.chances[:n])
        if trial:
            self.tried.append(n)
            self.trials.note_rows(n + 1)
            self.trials.pay(tokens, seconds)
            self.lost += max(0.0, 1.0 - tokens / seconds / max(self.outlook.rates))
        self.policy.observe(self.company, n + 1, n + 1, seconds)
        self.outlook.add([self.chances], [], self.company, 31)
        self.trials.consider(best, self.company, 31)


def test_a_neighbour_that_may_be_better_is_tried_soon_and_for_few_steps() -> None:
    bench = Bench(0.7, 0.02)  # all sizes are alike, but it seems as if each row took longer
    for _ in range(5 + N_LONGEST):
        bench.step(3)
    assert len(bench.tried) == N_MEASURED and len(set(bench.tried)) == 1
    assert 0 < abs(bench.tried[0] - 3) <= REACH
    for _ in range(40):
        bench.step(3)
    assert 5 in bench.tried, "which is better"


def test_what_cannot_be_better_is_never_tried() -> None:
    bench = Bench(0.001, 0.01, of_pass=0.0002)
    for _ in range(300):
        bench.step(0)
    assert bench.tried == []


def test_what_was_tried_is_tried_again_ever_more_rarely_and_within_the_budget() -> None:
    bench = Bench(0.9, 0.02, behind_2_rows=0.06)
    n_steps, at = 3000, []
    for i in range(n_steps):
        bench.step(1)
        if len(bench.tried) > len(at):
            at.append(i)
    assert bench.lost <= FIRST_BUDGET + SAVED * n_steps + N_LONGEST
    early, late = (sum(a <= i < b for i in at) for a, b in ((0, 300), (n_steps - 300, n_steps)))
    assert late < early


def test_beside_prompts_and_before_anything_is_known_nothing_is_tried() -> None:
    bench = Bench(0.7, 0.02)
    bench.outlook.add([bench.chances], [], bench.company, 31)
    bench.trials.consider(3, bench.company, 31)
    assert bench.trials.begin_step(is_possible=True) is None
    for _ in range(4):
        bench.step(3)
    assert bench.trials.begin_step(is_possible=True) is not None
    assert bench.trials.begin_step(is_possible=False) is None, "a prompt came"
