"""KL statistics and the bound."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from compat_tests.kl.pyjet_logits import same_bits
from compat_tests.kl.report import Divergence, FileResult, divergence, kl_rows, misses, table

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


def test_measure_is_llama_cpps_own_noise() -> None:
    assert misses([result("Q8_0", SMALL)]) == []
    assert misses([result("Q8_0", dataclasses.replace(SMALL, p99=1.2e-4))]) == []
    worse = dataclasses.replace(SMALL, p99=2e-4)
    assert misses([result("Q8_0", worse)]) == ["Q8_0, f16 KV: p99 KLD against llama.cpp batch is 0.0002 > 0.000125"]


def test_measure_of_a_file_is_the_largest_of_its_kv_types() -> None:
    none = Divergence(rows=10, mean=0, median=0, p99=0, max=0, top1=1)
    equal = dataclasses.replace(result("Q8_0", SMALL), kv_type="q8_0", noise=none)
    assert misses([equal]) != []
    assert misses([equal, result("Q8_0", SMALL)]) == []
    assert misses([equal, result("Q4_K_M", SMALL)]) != []


def test_f16_has_a_fixed_bound_on_the_mean() -> None:
    assert misses([result("F16", dataclasses.replace(SMALL, mean=9e-5, max=1))]) == []
    assert len(misses([result("F16", dataclasses.replace(SMALL, mean=2e-4))])) == 1


def test_row_paths_must_agree_bit_for_bit() -> None:
    zero = np.zeros((1, 2), dtype=np.float32)
    assert same_bits({"prefill": zero, "single": zero.copy()})
    assert not same_bits({"prefill": zero, "single": -zero})
    assert "differ between" in misses([result("F16", SMALL, equal=False)])[0]


def test_table_has_a_line_per_comparison() -> None:
    assert len(table([result("F16", SMALL)]).splitlines()) == 5
