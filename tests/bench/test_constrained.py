"""The benchmark of grammars says what it measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import constrained
from tests.server.real import has_library


@pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
def test_numbers_of_a_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "numbers.json"
    monkeypatch.setattr(sys, "argv", ["constrained", "--agents", "2", "--tokens", "12", "--json", str(path)])
    assert constrained.main() in (0, 1)
    numbers = json.loads(path.read_text())
    assert numbers["free"]["tokens"] == numbers["constrained"]["tokens"] == 24
    assert 0 < numbers["masks_ms"] <= numbers["masks_p99_ms"]
    assert all(numbers[kind][name] > 0 for kind in ("free", "constrained") for name in ("step_ms", "host_ms"))
