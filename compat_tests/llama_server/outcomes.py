"""What a run of the suite gave, per file and class, and which failures count."""

from __future__ import annotations

import ast
import pathlib
from typing import Any

from compat_tests.llama_server.classification import classify

Outcomes = dict[str, dict[str, Any]]


def mark(outcomes: Outcomes, ceiling: Outcomes | None) -> None:
    """Add the class of every test, and whether its failure is excused because the real server fails it too."""
    for nodeid, outcome in outcomes.items():
        file, function = nodeid.split("::")[0].split("/")[-1], nodeid.split("::")[1].split("[")[0]
        outcome["class"] = classify(file, function)[0]
        known = (ceiling or {}).get(nodeid, {}).get("outcome")
        outcome["excused"] = outcome["outcome"] == "failed" and ceiling is not None and known != "passed"


def count(outcomes: Outcomes, what: str, cls: str | None = None) -> int:
    return sum(o["outcome"] == what and cls in (None, o["class"]) for o in outcomes.values())


def report(outcomes: Outcomes, classes: list[str]) -> list[str]:
    """Lines: one per file, one per failure, one per class, then the total."""
    files: dict[str, dict[str, list[str]]] = {}
    for nodeid, outcome in outcomes.items():
        by_class = files.setdefault(nodeid.split("::")[0].split("/")[-1], {})
        by_class.setdefault(outcome["class"], []).append(outcome["outcome"])
    lines = [_file_line(file, files[file]) for file in sorted(files)] + failures(outcomes)
    for cls in classes:
        passed, failed = count(outcomes, "passed", cls), count(outcomes, "failed", cls)
        lines.append(f"class {cls}: {passed} of {passed + failed} run, {count(outcomes, 'skipped', cls)} skipped")
    excused = sum(o["excused"] for o in outcomes.values())
    failed, skipped = count(outcomes, "failed") - excused, count(outcomes, "skipped") + excused
    lines.append(f"total: {count(outcomes, 'passed')} passed, {failed} failed, {skipped} skipped")
    return lines


def failures(outcomes: Outcomes) -> list[str]:
    """One line per failed test, with the first line of its reason."""
    lines = []
    for nodeid, outcome in outcomes.items():
        if outcome["outcome"] == "failed":
            note = "  (the real server fails it too)" if outcome["excused"] else ""
            first = (outcome["text"].splitlines() or [""])[0][:160]
            lines.append(f"FAILED [{outcome['class']}] {nodeid.split('/')[-1]}{note}: {first}")
    return lines


def _file_line(file: str, by_class: dict[str, list[str]]) -> str:
    cells = [
        f"{cls} {r.count('passed'):3} passed {r.count('failed'):2} failed {r.count('skipped'):2} skipped"
        for cls, r in sorted(by_class.items())
    ]
    return f"{file:34} " + "   ".join(cells)


def classification_counts(suite: pathlib.Path) -> list[str]:
    """Test functions of each class per file, then in total."""
    total = {"A": 0, "B": 0, "C": 0}
    lines = []
    for file in sorted((suite / "unit").glob("test_*.py")):
        n = {"A": 0, "B": 0, "C": 0}
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                n[classify(file.name, node.name)[0]] += 1
        total = {cls: total[cls] + n[cls] for cls in total}
        lines.append(f"{file.name:34} A {n['A']:3}  B {n['B']:3}  C {n['C']:3}")
    return [*lines, f"{'functions':34} A {total['A']:3}  B {total['B']:3}  C {total['C']:3}"]
