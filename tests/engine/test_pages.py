from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.pages import PageLease, PagePool


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=60))
def test_pages_never_get_lost_or_shared(actions: list[tuple[int, int]]) -> None:
    pool = PagePool(20, 16)
    leases: list[PageLease] = []
    for kind, n in actions:
        if kind == 0:
            promised = sum(lease.n_reserved for lease in leases)
            lease = pool.lease(n)
            assert (lease is not None) == (promised + n <= 20)
            leases += [lease] if lease else []
        elif leases and kind == 1:
            lease = leases[n % len(leases)]
            lease.grow(min(n, lease.n_reserved))
        elif leases:
            leases.pop(n % len(leases)).close()
        pool.check()
    for lease in leases:
        lease.close()
        lease.close()
    pool.check()
    assert pool.n_used == 0


def test_growing_beyond_the_promise_is_an_error() -> None:
    lease = PagePool(4, 16).lease(2)
    assert lease is not None
    with pytest.raises(ValueError, match="3 pages wanted, 2 reserved"):
        lease.grow(3)


def test_pages_for_rounds_up() -> None:
    pool = PagePool(4, 16)
    assert [pool.pages_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
