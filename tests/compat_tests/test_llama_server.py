"""What runs llama-server's suite: bent literals, filled prompts, forked servers, the page of results."""

from __future__ import annotations

import ast
import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from compat_tests.llama_server import bend, report
from compat_tests.llama_server.classification import CLASSES, classify
from compat_tests.llama_server.endpoints import probe
from compat_tests.llama_server.models import MODELS
from compat_tests.llama_server.outcomes import failures, mark
from compat_tests.llama_server.reasons import MODEL_REASONS, REASONS
from compat_tests.llama_server.rules import B_RULES
from compat_tests.llama_server.state import State
from compat_tests.llama_server.warm import WarmServer


class Item:
    """A pytest item as far as keys of counts need it."""

    path = Path("test_ctx_shift.py")
    name = "test_ctx_shift_enabled"


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    monkeypatch.setattr(State, "item", Item)
    monkeypatch.setattr(State, "expected", expected)
    monkeypatch.setattr(State, "seen", {})
    return expected


def run_bent(source: str, **names: Any) -> Any:
    """Value of ``test_ctx_shift_enabled(**names)`` after its literals were bent."""
    tree = ast.fix_missing_locations(bend.Bend().visit(ast.parse(source)))
    scope: dict[str, Any] = dict(bend.BUILTINS)
    exec(compile(tree, "test", "exec"), scope)
    return scope["test_ctx_shift_enabled"](**names)


def test_counts_of_one_model_are_recorded_then_compared(counts: dict[str, Any]) -> None:
    source = "def test_ctx_shift_enabled(n):\n    return n == 226, n == 96"
    assert run_bent(source, n=200) == (True, False)
    key = "test_ctx_shift.py::test_ctx_shift_enabled::226#1"
    assert State.seen == {key: 200}
    counts[key] = 200
    assert run_bent(source, n=200) == (True, False)
    assert run_bent(source, n=201) == (False, False)


def test_prompts_are_filled_with_whole_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bend, "token_count", lambda text: 2 + sum(len(word) for word in text.split()))
    assert bend.fill("aa b ccc", 12) == "aa b cccaa b "
    assert bend.fill("aa b ccc", 5) == "aa b "
    assert bend.fill("aaaaaaaa", 4) == ""


def test_rules_and_classes_belong_together() -> None:
    of_class_b = {
        function for file, rules in CLASSES.items() for function in rules if classify(file, function)[0] == "B"
    }
    named = {name for name in B_RULES if any(name in rules for rules in CLASSES.values())}
    assert named <= of_class_b
    by_default = set(B_RULES) - named
    assert by_default and all(classify("test_speculative.py", name)[0] == "B" for name in by_default)


def test_failures_are_told_with_their_reason() -> None:
    outcomes = {"unit/test_basic.py::test_x[1]": {"outcome": "failed", "text": "assert 1 == 2\nmore", "seconds": 1}}
    mark(outcomes, None)
    assert failures(outcomes) == ["FAILED [A] test_basic.py::test_x[1]: assert 1 == 2"]


def test_a_forked_server_is_a_process_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = ["pyjet-server", "--port", "0", "-c", "256", "-np", "1", "-t", "1"]
    with log.open("w") as output:
        server = WarmServer(arguments, output, {"PATH": "/usr/bin"})
    try:
        deadline = time.monotonic() + 120
        while (found := re.search(r"listening on (\S+)", log.read_text())) is None:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        with urllib.request.urlopen(found[1] + "/health", timeout=30) as answer:
            assert json.load(answer) == {"status": "ok"}
    finally:
        server.terminate()
        assert server.wait(30) == 0
    assert server.returncode == 0


def test_every_endpoint_is_known_or_says_why_not() -> None:
    answers = {(e.method, e.paths[0]): e.answer for e in probe()}
    assert "unknown (404)" not in answers.values()
    assert answers["POST", "/completion"] == "works" and answers["POST", "/tools"].startswith("403")


def test_the_page_is_up_to_date() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run python -m compat_tests.llama_server.report"


def test_recorded_runs_keep_their_bounds_and_explain_the_rest() -> None:
    for run in report.records():
        missing = {name.split("::")[1].split("[")[0] for name, o in run["outcomes"].items() if o["outcome"] != "passed"}
        known = set(REASONS) | {function for function, model in MODEL_REASONS if model == run["model"]}
        assert missing <= known, f"{run['model']}: give a reason in compat_tests/llama_server/reasons.py"
        assert run["passed"] >= run["least"] == next(m.least for m in MODELS if m.name == run["model"])


def test_reasons_are_of_tests_that_fail() -> None:
    text = report.page()
    for function in [*REASONS, *(function for function, _ in MODEL_REASONS)]:
        assert re.search(rf"\| `test_\w+\.py::{function}`", text), f"{function} passes: remove its reason"
