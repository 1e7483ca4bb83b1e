from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyjet.engine.host_store import HostBlock, HostStore
from pyjet.native.config import ERR_MEMORY
from pyjet.native.library import NativeError

PAGE, STATE = 8, 40


def memory(n_bytes: int) -> np.ndarray:
    return np.zeros(n_bytes, np.uint8)


@given(st.integers(0, 1000), st.lists(st.sampled_from(["page", "state", "free", "free"]), max_size=80))
def test_blocks_do_not_overlap_and_stay_within_the_budget(budget: int, actions: list[str]) -> None:
    store = HostStore(budget, PAGE, STATE, memory)
    blocks: list[HostBlock] = []
    for i, what in enumerate(actions):
        if what == "free":
            if blocks:
                store.free(blocks.pop(i % len(blocks)))
            continue
        block = store.take_page() if what == "page" else store.take_state()
        if block is not None:
            assert len(block.data) == (PAGE if what == "page" else STATE)
            blocks.append(block)
        for number, one in enumerate(blocks):
            one.data[:] = number + 1
        assert [set(one.data.tolist()) for one in blocks] == [{number + 1} for number in range(len(blocks))]
        assert store.bytes_used == sum(len(one.data) for one in blocks) <= store.bytes_allocated <= budget


def test_an_empty_arena_may_change_its_kind() -> None:
    store = HostStore(16 * PAGE, PAGE, STATE, memory)
    block = store.take_page()
    assert block is not None and store.take_state() is None
    store.free(block)
    assert store.take_state() is not None and store.take_page() is None


def test_without_a_limit_and_with_memory_that_ends() -> None:
    allocated = []

    def until_three(n_bytes: int) -> np.ndarray:
        if len(allocated) == 3:
            raise NativeError(ERR_MEMORY, "no more")
        allocated.append(n_bytes)
        return memory(n_bytes)

    store = HostStore(None, PAGE, STATE, until_three)
    while store.allocate_ahead(2 * 16 * PAGE):
        pass
    assert len(allocated) == 2 and store.bytes_used == 0
    taken = [store.take_state() for _ in range(12)]
    assert sum(block is not None for block in taken) == 9


def test_all_of_a_budget_is_allocated_ahead() -> None:
    store = HostStore(5 * 16 * PAGE, PAGE, STATE, memory)
    while store.allocate_ahead(1 << 30):
        pass
    assert store.bytes_allocated == 5 * 16 * PAGE


def test_a_spare_state_allocates_nothing() -> None:
    store = HostStore(None, PAGE, STATE, memory)
    assert store.spare_state() is None and store.bytes_allocated == 0
    assert store.allocate_ahead(1000)
    spare, allocated = store.spare_state(), store.bytes_allocated
    assert spare is not None and len(spare.data) == STATE and store.bytes_used == STATE
    while store.spare_state() is not None:
        pass
    assert store.bytes_allocated == allocated
    store.free(spare)
    assert store.spare_state() is not None
