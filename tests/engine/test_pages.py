from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.pages import PagePool


@given(st.lists(st.tuples(st.sampled_from(["take", "hold", "drop"]), st.integers(0, 12)), max_size=60))
def test_a_page_is_free_when_its_last_holder_lets_go(actions: list[tuple[str, int]]) -> None:
    pool = PagePool(20, 16)
    held: list[int] = []  # one entry for each holder
    for what, n in actions:
        n_free = pool.n_free
        if what == "take":
            pages = pool.take(n)
            assert (pages is None) == (n > n_free)
            assert not set(pages or ()) & set(held)
            held += pages or []
        elif held and what == "hold":
            held.append(pool.hold(held[n % len(held)]))
        elif held:
            pool.drop([held.pop(n % len(held))])
        pool.check(held)
        assert pool.n_used == len(set(held))
    pool.drop(held)
    pool.check([])
    assert pool.n_free == 20


def test_pages_for_rounds_up() -> None:
    pool = PagePool(4, 16)
    assert [pool.pages_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
