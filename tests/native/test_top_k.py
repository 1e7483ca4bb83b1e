"""The k largest of many values, against a stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.native import NativeError, top_indices

SPECIAL = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0], np.float32)


def by_sorting(values: np.ndarray, k: int) -> list[int]:
    """NaN is what a stable sort of the negated values puts last."""
    return np.argsort(-values, kind="stable")[:k].tolist()


@given(st.integers(0, 2**32), st.integers(1, 20_000), st.integers(0, 3000), st.sampled_from([2, 30, 2000]))
@settings(max_examples=150, deadline=None)
def test_against_a_stable_sort(seed: int, n: int, k: int, n_values: int) -> None:
    """Few different values: many equals. Some values are special."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-n_values, n_values, n).astype(np.float32) / 8
    if seed % 2:
        values[rng.integers(0, n, n // 50 + 1)] = rng.choice(SPECIAL, n // 50 + 1)
    assert top_indices(values, k).tolist() == by_sorting(values, k)


@pytest.mark.parametrize("k", [1, 40, 256, 970, 971, 8192, 248_320, 300_000])
def test_a_vocabulary(k: int) -> None:
    values = np.random.default_rng(k).standard_normal(248_320).astype(np.float32)
    assert top_indices(values, k).tolist() == by_sorting(values, k)


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf, 1.0])
def test_all_the_same(value: float) -> None:
    assert top_indices(np.full(10_000, value, np.float32), 50).tolist() == list(range(50))


def test_nothing() -> None:
    assert top_indices(np.zeros(0, np.float32), 5).tolist() == []
    assert top_indices(np.zeros(5, np.float32), 0).tolist() == []
    with pytest.raises(NativeError, match="the -1 largest of 5 values"):
        top_indices(np.zeros(5, np.float32), -1)


def test_other_layouts() -> None:
    """A view of every second value, and doubles."""
    values = np.arange(2000, dtype=np.float64)
    assert top_indices(values[::2], 3).tolist() == [999, 998, 997]
