"""Prompt lookup: whatever is found did occur, the longest n-gram counts, and no order of arrival matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.engine.lookup import FEW, MOST_COMPARED, SLICE, Found, LookupIndex


def index_of(tokens: list[int], min_match: int = 2, size: int = 4, min_hits: int = 1) -> LookupIndex:
    """With room for more tokens."""
    array = np.zeros(len(tokens) + 50, np.int32)
    array[: len(tokens)] = tokens
    return LookupIndex(array, min_match, size, min_hits)


def found_in(tokens: list[int], **sizes: int) -> Found | None:
    index = index_of(tokens, **sizes)
    index.extend(len(tokens))
    return index.find(len(tokens))


def longest_match(tokens: list[int]) -> int:
    """Most tokens before an earlier place that are also the newest ones."""
    n = len(tokens)

    def common(end: int) -> int:
        return next((i for i in range(min(end, MOST_COMPARED)) if tokens[end - 1 - i] != tokens[n - 1 - i]), end)

    return max((min(common(end), MOST_COMPARED) for end in range(1, n)), default=0)


def test_what_followed_the_last_time() -> None:
    assert found_in([1, 2, 3, 4, 5, 9, 1, 2]) == Found([3, 4, 5, 9], 2)
    assert found_in([1, 2, 7, 1, 2, 8, 5, 1, 2]) == Found([8, 5, 1, 2], 2), "the last time counts"
    assert found_in([1, 2, 3, 4]) is None
    assert found_in([1]) is None and found_in([]) is None


def test_a_longer_match_counts_more_than_a_later_one() -> None:
    assert found_in([5, 6, 1, 2, 7, 7, 0, 1, 2, 8, 5, 6, 1, 2]) == Found([7, 7, 0, 1], 4)


def test_a_repetition_goes_on() -> None:
    assert found_in([1, 2, 3, 1, 2, 3, 1, 2], size=8) == Found([3, 1, 2, 3, 1, 2, 3, 1], 5)
    assert found_in([4, 4, 4, 4], size=3) == Found([4, 4, 4], 3)


def test_it_must_have_occurred_often_enough() -> None:
    tokens = [1, 2, 3, 9, 1, 2, 3, 8, 1, 2]
    assert found_in(tokens, min_hits=2) is not None
    assert found_in(tokens, min_hits=3) is None


@pytest.mark.parametrize("min_match", [1, 2, 3, 12, 40])
def test_no_fewer_tokens_match(min_match: int) -> None:
    text = list(range(100, 160))
    for n_again in (min_match - 1, min_match):
        found = found_in([*text, 7, *text[3 : 3 + n_again]], min_match=min_match)
        assert (found is None) == (n_again < min_match)


TEXTS = st.lists(st.integers(0, 3), max_size=120)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 60), max_size=8), st.integers(1, 3))
def test_found_is_found_whatever_came_at_once(tokens: list[int], portions: list[int], min_match: int) -> None:
    n, one_by_one, in_portions = 0, index_of(tokens, min_match), index_of(tokens, min_match)
    for portion in [*portions, len(tokens)]:
        n = min(len(tokens), n + portion)
        in_portions.extend(n)
        for i in range(1, n + 1):
            one_by_one.extend(i)
        found = in_portions.find(n)
        assert found == one_by_one.find(n)
        longest = longest_match(tokens[:n])
        if found is None:
            # An entry may have been overwritten by another n-gram, but hardly all of them.
            assert longest < min_match or n > 50
            continue
        assert min_match <= found.n_match <= longest
        assert any(
            tokens[end - found.n_match : end] == tokens[n - found.n_match : n] and tokens[end] == found.tokens[0]
            for end in range(found.n_match, n)
        )


def test_matches_are_seldom_missed() -> None:
    rng = np.random.default_rng(0)
    n_missed = n_matches = 0
    for _ in range(20):
        tokens = rng.integers(0, 20, 300).tolist()
        index = index_of(tokens, 2)
        for n in range(1, len(tokens)):
            index.extend(n)
            found, longest = index.find(n), longest_match(tokens[:n])
            n_matches += longest >= 2
            n_missed += longest >= 2 and (found is None or found.n_match < min(longest, 4))
    assert n_matches > 1500 and n_missed < 0.1 * n_matches


def test_a_long_prompt_is_indexed_in_portions() -> None:
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 150_000, 3 * SLICE).tolist()
    tokens[-40:] = tokens[1000:1040]
    index = index_of(tokens, 3, 6)
    for _ in range(2):
        index.extend(len(tokens))
        assert index.find(len(tokens)) is None, "not all of it is known"
    index.extend(len(tokens))
    assert index.find(len(tokens)) == Found(tokens[1040:1046], MOST_COMPARED)


def test_few_and_many_at_once_are_the_same() -> None:
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, 9, 20 * FEW).tolist()
    few, many = index_of(tokens), index_of(tokens)
    for n in range(0, len(tokens), FEW // 2):
        few.extend(n)
    for n in range(0, len(tokens), 3 * FEW):
        many.extend(n)
    few.extend(len(tokens))
    many.extend(len(tokens))
    assert few.find(len(tokens)) == many.find(len(tokens))
    assert [level.ends.tolist() for level in few._levels] == [level.ends.tolist() for level in many._levels]
