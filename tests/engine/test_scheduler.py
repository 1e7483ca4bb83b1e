"""Who gets rows: everyone who decodes, then prompts by urgency and in equal shares."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.request import GenerationRequest
from pyjet.engine.scheduler import plan
from pyjet.engine.sequence import Sequence
from pyjet.engine.step_budget import StepBudget
from pyjet.engine.step_costs import StepCosts


class Stopping(Sequence):
    """Stops reading at every multiple of ``stop``."""

    stop = 4000

    def rows_within(self, n: int) -> int:
        return min(super().rows_within(n), self.stop - self.n_computed % self.stop)


def sequence(number: int, left: int, priority: int = 0, stop: int = 4000) -> Sequence:
    """With so many prompt tokens left; 0 decodes."""
    request = GenerationRequest(str(number), tuple(range(max(1, left))), priority=priority)
    result = Stopping(request, number, 0.0, 5000, 16, 5000)
    result.n_computed = 0 if left else 1
    result.stop = stop
    return result


def free(max_rows: int) -> StepBudget:
    """A budget on a device whose steps all take the same time."""
    return StepBudget(max_rows, 3.0, StepCosts([(1, 0.01), (max_rows, 0.01)]))


def rows(
    *lefts: int, max_rows: int, priorities: tuple[int, ...] = (), stops: tuple[int, ...] = ()
) -> list[tuple[int, int]]:
    """(number, rows) of the step in which sequences have so much left."""
    n = len(lefts)
    made = map(sequence, range(n), lefts, priorities or (0,) * n, stops or (4000,) * n)
    return [(s.id_task, n) for s, n in plan(made, max_rows, free(max_rows))]


def test_decoding_rows_come_first_and_prompts_share_the_rest() -> None:
    assert rows(100, 0, 100, 0, max_rows=22) == [(1, 1), (3, 1), (0, 10), (2, 10)]


def test_what_a_short_prompt_leaves_goes_to_the_oldest() -> None:
    assert rows(100, 3, 100, max_rows=30) == [(0, 17), (1, 3), (2, 10)]


def test_a_few_rows_go_to_the_oldest() -> None:
    assert rows(9, 9, 9, max_rows=2) == [(0, 1), (1, 1)]


def test_urgent_prompts_take_all_they_can() -> None:
    assert rows(90, 90, 90, max_rows=50, priorities=(0, 0, 5)) == [(2, 50)]
    assert rows(90, 90, 40, max_rows=50, priorities=(0, 0, 5)) == [(2, 40), (0, 5), (1, 5)]


def test_who_decodes_is_carried_beside_more_urgent_prompts() -> None:
    assert rows(0, 90, max_rows=10, priorities=(0, 5)) == [(0, 1), (1, 9)]


def test_what_cannot_be_read_before_a_stop_goes_to_others() -> None:
    assert rows(100, 100, max_rows=30, stops=(4, 4000)) == [(0, 4), (1, 26)]
    assert rows(100, 100, max_rows=30, stops=(4, 5)) == [(0, 4), (1, 5)]


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(8, 100))
def test_rows_are_used_and_never_exceeded(lefts: list[int], max_rows: int) -> None:
    planned = dict(rows(*lefts, max_rows=max_rows))
    wanted = sum(left or 1 for left in lefts)
    assert sum(planned.values()) == min(max_rows, wanted)
    assert all(1 <= n <= (lefts[i] or 1) for i, n in planned.items())
    assert len(planned) == len(lefts)


SEQUENCES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2), st.sampled_from([7, 64, 4000])), max_size=12)
PRICES = st.lists(st.floats(0.001, 0.2), min_size=6, max_size=6).map(sorted)


@settings(deadline=None)
@given(SEQUENCES, PRICES, st.sampled_from([1.0, 2.0, 3.0]), st.integers(12, 64))
def test_everyone_advances(made: list, prices: list[float], factor: float, max_rows: int) -> None:
    """Decoding sequences in each step, prompts until all are read."""
    agents = [sequence(i, *each) for i, each in enumerate(made)]
    budget = StepBudget(max_rows, factor, StepCosts([(1, prices[0])]))
    for _ in range(17 * 300 * 12):
        planned = plan(agents, max_rows, budget)
        n_rows = sum(n for _, n in planned)
        assert 1 <= n_rows <= max_rows or not agents
        assert {s.id_task for s, n in planned if n == 1} >= {s.id_task for s in agents if s.is_decoding}
        if all(s.is_decoding for s in agents):
            return
        for s, n in planned:
            assert s.is_decoding or n <= s.rows_within(n)
            s.advance(n)
        budget.observe(n_rows, prices[min(5, n_rows // 8)])
    raise AssertionError("prompts are not read")
