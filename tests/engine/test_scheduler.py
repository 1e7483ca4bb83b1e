from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.pages import PagePool
from pyjet.engine.request import GenerationRequest
from pyjet.engine.scheduler import plan
from pyjet.engine.sequence import Sequence


def sequences(*lefts: int, priorities: tuple[int, ...] = ()) -> list[Sequence]:
    """Sequences with so many prompt tokens left; 0 decodes."""
    pool = PagePool(1000, 16)
    result = []
    for i, left in enumerate(lefts):
        request = GenerationRequest(str(i), tuple(range(max(1, left))), priority=priorities[i] if priorities else 0)
        result.append(Sequence(request, i, 0.0, pool, 100, 4000))
        result[-1].n_computed = 0 if left else 1
    return result


def rows(*lefts: int, budget: int, priorities: tuple[int, ...] = ()) -> dict[int, int]:
    return {s.id_task: n for s, n in plan(sequences(*lefts, priorities=priorities), budget)}


def test_decoding_rows_come_first_and_prompts_share_the_rest() -> None:
    assert rows(100, 0, 100, 0, budget=22) == {1: 1, 3: 1, 0: 10, 2: 10}


def test_what_a_short_prompt_leaves_goes_to_the_oldest() -> None:
    assert rows(100, 3, 100, budget=30) == {0: 17, 1: 3, 2: 10}


def test_a_tight_budget_serves_the_oldest_or_most_urgent() -> None:
    assert rows(9, 9, 9, budget=2) == {0: 1, 1: 1}
    assert rows(9, 9, 9, budget=1, priorities=(0, 0, 5)) == {2: 1}


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(8, 100))
def test_the_budget_is_used_and_never_exceeded(lefts: list[int], budget: int) -> None:
    planned = rows(*lefts, budget=budget)
    wanted = sum(left or 1 for left in lefts)
    assert sum(planned.values()) == min(budget, wanted)
    assert all(1 <= n <= (lefts[i] or 1) for i, n in planned.items())
    assert len(planned) == len(lefts)
