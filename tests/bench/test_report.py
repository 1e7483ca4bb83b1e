"""README tables from result files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report
from bench.report_text import run_note

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


def test_greedy_table_tells_the_worst_mode_and_the_largest_gap() -> None:
    base = {"prompts": 4, "bound": 0.5, "beyond": 1, "llama_cpp_same": {"batch 8": 1.0, "batch 512": 0.75}}
    table = report.greedy_table(
        {
            "answer_tokens": 64, "prompt_tokens": 384, "pyjet": "pyjet 0", "device": "a CPU", "llama_cpp": "x 1",
            "date": "2026-01-01",
            "results": [
                {**base, "file": "a", "same": 0.5, "differences": [{"gap": 0.25}, {"gap": 0.625}]},
                {**base, "file": "b", "same": 1.0, "differences": []},
            ],
        }
    )  # fmt: skip
    assert "| a | 4 | 50% | 75% | 0.625 | 0.500 | 1 |" in table
    assert "| b | 4 | 100% | 75% |  | 0.500 | 1 |" in table


def test_kl_table_names_files_with_fewer_tokens_and_the_nudged_file() -> None:
    figures = {"mean": 1e-4, "median": 1e-5, "p99": 1e-3, "max": 1e-2, "top1": 0.99}
    own = {"llama_cpp_own": figures, "llama_cpp_nudged": None, "pyjet_pooled": figures, "compared": {"mean": "1.00"}}
    head = dict.fromkeys(("pyjet", "device", "llama_cpp", "date"), "x")
    table = report.kl_table(
        {
            **head,
            "tokens": 200,
            "window_tokens": 100,
            "results": [
                {"weights": "F16", "kv": "f16", "tokens": 100, **own},
                {"weights": "Q8_0", "kv": "f16", "tokens": 200, **own},
                {"weights": "Q8_0", "kv": "q8_0", "tokens": 200, **own, "llama_cpp_nudged": figures},
            ],
        }
    )
    assert "200 tokens (F16: 100) of" in table
    assert [line.split("|")[1].strip() for line in table.splitlines() if "llama.cpp" in line] == [
        "F16: llama.cpp itself",
        "Q8_0: llama.cpp itself",
        "Q8_0, q8_0 KV: llama.cpp, nudged",
    ]


def test_every_table_of_the_readme_is_recorded() -> None:
    text = (report.ROOT / "README.md").read_text(encoding="utf-8")
    names = [match["name"] for match in report.MARKED.finditer(text)]
    assert sorted(names) == sorted(report.TABLES)
    assert all(report.render(name).startswith(("|", report.NOT_MEASURED)) for name in names)


def test_agents_table_has_a_column_for_each_server_and_the_verdicts() -> None:
    record = {
        **dict.fromkeys(("sizes", "model", "device", "commit", "date"), "x"),
        "followup_ttft_s_4x23k": 0.25,
        "llama_cpp_followup_ttft_s_4x23k": 4.63,
        "longest_pause_s": 0.2,
    }
    lines = [[cell.strip() for cell in line.split("|")[2:-1]] for line in report.agents_table(record).splitlines()[2:6]]
    assert lines[0] == ["0.25", "4.63", "", "<= 0.3", "ok"]
    assert lines[1][-1] == "not measured"
    assert lines[2][-1] == "MISSED"


def test_figures_of_an_earlier_commit_are_named() -> None:
    record = {"device": "a card", "commit": "new", "date": "2026-01-01", "llama_cpp_commit": "old"}
    assert run_note(record) == "a card; commit new, llama.cpp's figures of old; 2026-01-01."


def test_a_table_without_results_says_so(results: Path) -> None:
    assert report.render("agents-h200") == report.NOT_MEASURED


def test_clients_table_has_one_line_for_each_client_and_version() -> None:
    row = {"client": "a", "package": "a-pip", "version": "1.0", "api": "/x", "model": "played", "result": "ok"}
    failed = {**row, "client": "b", "result": "FAILED: it ended with status 1"}
    record = {"date": "d", "pyjet": "0", "clients": [row, {**row, "api": "/x, streamed"}, {**row, "api": "/y"}, failed]}
    lines = report.clients_table(record).splitlines()
    assert lines[2:4] == ["| a | a-pip 1.0 | `/x`, `/y` | played | ok |", "| b | a-pip 1.0 | `/x` | played | FAILED |"]
