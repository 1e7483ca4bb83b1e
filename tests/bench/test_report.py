"""README tables from result files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report

BENCH = {
    "model": "m.gguf", "device": "cpu", "threads": 2, "kv": "f16", "repeat": 3, "llama_cpp": "x", "date": "2026-01-01",
    "results": [{"task": "decode", "tokens": 32, "pyjet": 1234.5, "llama.cpp": 1000.0, "ratio": 1.2345}],
}  # fmt: skip


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bench-cpu.json").write_text(json.dumps(BENCH), encoding="utf-8")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    return tmp_path


def test_a_marked_table_is_replaced_and_the_rest_stays(results: Path) -> None:
    text = "before\n<!-- table: bench-cpu -->\nold\n<!-- end -->\nafter\n"
    filled = report.fill(text)
    assert "| decode 32 | 1,234 | 1,000 | 1.23 |" in filled
    assert "old" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("<!-- end -->\nafter\n")
    assert report.fill(filled) == filled


def test_every_table_of_the_readme_is_recorded() -> None:
    text = (report.ROOT / "README.md").read_text(encoding="utf-8")
    names = [match["name"] for match in report.MARKED.finditer(text)]
    assert sorted(names) == sorted(report.TABLES)
    assert all(report.render(name).startswith("|") for name in names)
