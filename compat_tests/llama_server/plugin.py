"""The pytest plugin that runs inside the suite's process; loaded by run.py with `-p`."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import _pytest.assertion.rewrite as rewrite
import pytest

from compat_tests.llama_server.bend import Bend, Expect
from compat_tests.llama_server.classification import CLASSES, classify
from compat_tests.llama_server.rules import B_RULES
from compat_tests.llama_server.state import CONFIG_VARIABLE, State, file_name, function_name
from compat_tests.llama_server.suite_utils import install

State.cfg = json.loads(os.environ[CONFIG_VARIABLE])
install(State.cfg)

_rewrite_asserts: Any = rewrite.rewrite_asserts


def _bend_then_rewrite(mod: ast.Module, source: bytes, module_path: str | None = None, config: Any = None) -> None:
    """Bends class B functions while pytest's import hook compiles a test module."""
    if module_path and (name := pathlib.Path(module_path).name) in CLASSES:
        for i, node in enumerate(mod.body):
            if isinstance(node, ast.FunctionDef) and classify(name, node.name)[0] == "B":
                mod.body[i] = Bend().visit(node)
        ast.fix_missing_locations(mod)
    _rewrite_asserts(mod, source, module_path, config)


rewrite.rewrite_asserts = _bend_then_rewrite


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    keep: list[Any] = []
    drop: list[Any] = []
    for item in items:
        cls, _ = classify(file_name(item), function_name(item))
        (keep if cls in State.cfg["classes"] else drop).append(item)
        if cls == "B" and hasattr(item, "callspec"):
            for param, mode in B_RULES.get(function_name(item), {}).get("params", {}).items():
                if param in item.callspec.params:
                    item.callspec.params[param] = Expect(param, item.callspec.params[param], mode)
    if drop:
        config.hook.pytest_deselected(items=drop)
        items[:] = keep


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    State.item = item


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    def on_alarm(signum: int, frame: object) -> None:
        raise TimeoutError(f"test took more than {State.cfg['test_timeout']} s")

    old = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(State.cfg["test_timeout"])
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def pytest_runtest_logreport(report: Any) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    if State.outcomes.get(report.nodeid, {}).get("outcome") == "failed":
        return
    text = ""
    if report.outcome == "failed":
        text = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr))[:400]
    elif report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        text = str(report.longrepr[2])
    State.outcomes[report.nodeid] = {"outcome": report.outcome, "text": text, "seconds": round(report.duration, 2)}


def pytest_sessionfinish(session: Any) -> None:
    if hasattr(session.config, "workerinput"):
        return
    record = {"outcomes": State.outcomes, "seen": State.seen}
    pathlib.Path(State.cfg["out"]).write_text(json.dumps(record, indent=1), encoding="utf-8")
