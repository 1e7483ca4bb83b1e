from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.pages import PageLease, PagePool


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=60))
def test_pages_never_get_lost_or_shared(actions: list[tuple[int, int]]) -> None:
    pool = PagePool(20, 16)
    leases = [PageLease(pool) for _ in range(4)]
    for number, n in actions:
        if number < len(leases):
            lease, before = leases[number], list(leases[number].pages)
            fits = n - len(before) <= pool.n_free
            assert lease.grow(n) == fits
            assert lease.pages[: len(before)] == before
            assert len(lease.pages) == (max(n, len(before)) if fits else len(before))
        else:
            leases[n % len(leases)].free()
        pool.check()
    for lease in leases:
        lease.free()
        lease.free()
    pool.check()
    assert pool.n_used == 0 and pool.n_free == 20


def test_pages_for_rounds_up() -> None:
    pool = PagePool(4, 16)
    assert [pool.pages_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
