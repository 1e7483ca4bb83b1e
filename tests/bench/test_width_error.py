"""Errors of one device against another: zero for the same arithmetic, small for another order of sums."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from bench.width_error import main, relative_errors


def test_relative_errors_are_of_the_largest_logit() -> None:
    reference = np.array([[1.0, -4.0], [2.0, 1.0]])
    other = reference + np.array([[0.0, 0.4], [0.0, -1.0]])
    assert np.allclose(relative_errors(other, reference), [0.1, 0.5])


def test_the_cpu_against_itself(tmp_path: Path) -> None:
    out = tmp_path / "width.json"
    result = CliRunner().invoke(
        main, ["--device", "cpu", "--preset", "micro", "--tokens", "20", "--folder", str(tmp_path), "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    assert figures["width_error_max"] == 0
    assert 0 < figures["width_error_cpu_f16_kv_median"] < 0.2
    assert figures["width_error_cpu_portable_max"] < 0.2
