"""Which prompt tokens are new."""

from __future__ import annotations

import numpy as np
import pytest

from bench.token_ledger import TokenLedger
from pyjet.engine.prefix_tree import n_equal


@pytest.mark.parametrize(
    ("a", "b", "length"), [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([1, 2, 3], [1, 9, 3], 1)]
)
def test_common_prefix(a: list[int], b: list[int], length: int) -> None:
    assert n_equal(np.array(a, np.int64), np.array(b, np.int64)) == length


def test_a_shared_beginning_is_new_once() -> None:
    ledger = TokenLedger()
    assert ledger.add_prompt([1, 2, 3, 4]) == 4
    assert ledger.add_prompt([1, 2, 3, 5, 6]) == 2


def test_an_answer_is_known_as_far_as_the_next_prompt_repeats_it() -> None:
    ledger = TokenLedger()
    ledger.add_prompt([1, 2])
    ledger.add_answer([1, 2], [3, 4])
    assert ledger.add_prompt([1, 2, 3, 4, 5, 6]) == 2
    assert ledger.add_prompt([1, 2, 4, 5, 6]) == 3  # the template dropped a thought


def test_the_last_token_of_a_prompt_is_always_read() -> None:
    ledger = TokenLedger()
    ledger.add_prompt([1, 2, 3])
    assert ledger.add_prompt([1, 2, 3]) == 1
    assert ledger.add_prompt([1, 2]) == 1
