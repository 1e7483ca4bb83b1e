"""KL statistics and the bound."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from compat_tests.kl.pyjet_logits import same_bits
from compat_tests.kl.report import Divergence, FileResult, divergence, kl_rows, table

SMALL = Divergence(rows=10, mean=1e-5, median=1e-6, p99=1e-4, max=1e-3, top1=1.0)


def test_kl_of_known_distributions() -> None:
    base = np.log(np.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]], dtype=np.float32))
    other = np.log(np.array([[0.25, 0.25, 0.5], [0.2, 0.3, 0.5]], dtype=np.float32)) + 3
    expected = 0.5 * np.log(2) + 0.25 * np.log(0.5)
    assert kl_rows(base, other) == pytest.approx([expected, 0], abs=1e-6)
    found = divergence([(base, other)])
    assert (found.rows, found.top1) == (2, 0.5)
    assert found.max == pytest.approx(expected, abs=1e-6)


def result(weights: str, ours: Divergence, equal: bool = True) -> FileResult:
    return FileResult(weights, "f16", SMALL, {"batch": ours, "single": SMALL}, equal)


def test_bound_is_llama_cpps_own_noise() -> None:
    assert result("Q8_0", SMALL).misses() == []
    worse = dataclasses.replace(SMALL, p99=2e-4)
    assert result("Q8_0", worse).misses() == ["Q8_0, f16 KV: p99 KLD against llama.cpp batch is 0.0002 > 0.0001"]


def test_f16_has_a_fixed_bound_on_the_mean() -> None:
    assert result("F16", dataclasses.replace(SMALL, mean=9e-5, max=1)).misses() == []
    assert len(result("F16", dataclasses.replace(SMALL, mean=2e-4)).misses()) == 1


def test_row_paths_must_agree_bit_for_bit() -> None:
    zero = np.zeros((1, 2), dtype=np.float32)
    assert same_bits({"prefill": zero, "single": zero.copy()})
    assert not same_bits({"prefill": zero, "single": -zero})
    assert "differ between" in result("F16", SMALL, equal=False).misses()[0]


def test_table_has_a_line_per_comparison() -> None:
    assert len(table([result("F16", SMALL)]).splitlines()) == 5
