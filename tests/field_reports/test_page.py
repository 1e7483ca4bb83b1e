"""docs/field-reports.md names tests that exist, and every test of this folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "field-reports.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[(FR-\d+)\]\((https://\S+)\) \| ([^|]+) \| (.+) \|$", re.MULTILINE)
NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")
ROWS = {match[1]: match[4] for match in ROW.finditer(PAGE)}


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}  # fmt: skip


def test_every_report_has_one_row() -> None:
    numbers = [int(match[1][3:]) for match in ROW.finditer(PAGE)]
    assert numbers == sorted(set(numbers)) and len(numbers) > 40
    assert PAGE.count("| [FR-") == len(numbers), "a row has another form"


@pytest.mark.parametrize("report", ROWS)
def test_the_tests_of_a_report_exist(report: str) -> None:
    named = NAME.findall(ROWS[report])
    assert named, f"{report} names no test"
    for file, name in named:
        assert name in names_in(TESTS / file), f"{report}: {file} has no {name}"


def test_every_test_of_this_folder_belongs_to_a_report() -> None:
    named = set(NAME.findall(PAGE))
    for path in Path(__file__).parent.glob("test_*.py"):
        if path.name != Path(__file__).name:
            missing = {name for name in names_in(path) if (f"field_reports/{path.name}", name) not in named}
            assert not missing, f"{path.name}: {missing}"
