"""Run all clients and print a table: ``make clients``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import pyjet
from bench.server import running_server
from compat_tests.clients.agents import AGENTS
from compat_tests.clients.case import Case, Place, run_client
from compat_tests.clients.install import Tools
from compat_tests.clients.played_server import PlayedServer, played_server
from compat_tests.clients.sdks import SDKS
from compat_tests.environments import InstallError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "clients.json"
Row = dict[str, Any]


def run_sdks(cases: Sequence[Case], tools: Tools, timeout_s: float) -> list[Row]:
    """All against one pyjet-server with the embedded model."""
    with running_server(["--parallel", "2", "--kv-unified", "--ctx-size", "16384"]) as url:
        return [_row(case, tools, _run(case, tools, url, timeout_s)) for case in cases]


def run_agents(cases: Sequence[Case], tools: Tools, timeout_s: float) -> list[Row]:
    """All against one server whose model's words are played."""
    with played_server() as server:
        return [_row(case, tools, run_played(case, tools, server, timeout_s)) for case in cases]


def _run(case: Case, tools: Tools, url: str, timeout_s: float, server: PlayedServer | None = None) -> str | None:
    with tempfile.TemporaryDirectory(prefix="pyjet-client-") as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        work.mkdir()
        if server is not None and case.play is not None:
            server.say(case.play(work))
        return run_client(case, Place(tools, url, home, work), timeout_s)


def run_played(case: Case, tools: Tools, server: PlayedServer, timeout_s: float) -> str | None:
    failure = _run(case, tools, server.url, timeout_s, server)
    if failure is None and server.refused():
        return "the server answered " + ", ".join(server.refused())
    answered = sum(path == case.api for _, path, _ in server.requests)
    if failure is None and answered < len(server.play.turns):
        return f"it sent {answered} requests to {case.api} instead of {len(server.play.turns)}"
    return failure


def _row(case: Case, tools: Tools, failure: str | None) -> Row:
    """A line of the table; shows failures at once, in full."""
    result = "ok" if failure is None else "FAILED: " + failure.splitlines()[0]
    click.echo(f"{case.client}, {case.api}: {result if failure is None else failure}", err=True)
    version = tools.version(case.environment, case.package)
    return {"client": case.client, "package": case.package, "version": version, "api": case.api,
            "model": "pyjet-tiny" if case.play is None else "played", "result": result}  # fmt: skip


def installed(cases: Sequence[Case], tools: Tools) -> tuple[list[Case], list[Row]]:
    """The cases whose clients could be installed, and rows for the others."""
    problems: dict[str, str] = {}
    for environment in dict.fromkeys(case.environment for case in cases):
        try:
            tools.install(environment)
        except InstallError as error:
            click.echo(str(error), err=True)
            problems[environment] = str(error).splitlines()[0]
    rows = [{"client": case.client, "package": case.package, "version": "", "api": case.api, "model": "",
             "result": f"FAILED: {problems[case.environment]}"}
            for case in cases if case.environment in problems]  # fmt: skip
    return [case for case in cases if case.environment not in problems], rows


def table(rows: Sequence[Row]) -> str:
    """Aligned lines: client, version, API, model, result."""
    lines = [("client", "version", "api", "model", "result")]
    lines += [(r["client"], r["version"], r["api"], r["model"], r["result"]) for r in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths)), line[4]]) for line in lines)


@click.command()
@click.option("--only", multiple=True, help="Names of clients; without it all run.")
@click.option("--tools", type=click.Path(path_type=Path), default=ROOT / ".cache" / "clients",
              help="Where the clients are installed.")  # fmt: skip
@click.option("--timeout", default=600.0, show_default=True, help="Seconds that one client may take.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Where the table goes as JSON.")
def main(only: tuple[str, ...], tools: Path, timeout: float, out: Path) -> None:
    """Let each client change a file through a running server; exit with status 1 when one cannot."""
    if unknown := set(only) - {case.client for case in [*SDKS, *AGENTS]}:
        raise click.UsageError(f"no such client: {', '.join(sorted(unknown))}")
    wanted = [case for case in [*SDKS, *AGENTS] if not only or case.client in only]
    cases, rows = installed(wanted, Tools(tools))
    if sdks := [case for case in cases if case.play is None]:
        rows += run_sdks(sdks, Tools(tools), timeout)
    if agents := [case for case in cases if case.play is not None]:
        rows += run_agents(agents, Tools(tools), timeout)
    click.echo(table(rows))
    if not only:
        record = {"date": time.strftime("%Y-%m-%d"), "pyjet": pyjet.__version__, "clients": rows}
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row["result"] != "ok" for row in rows))


if __name__ == "__main__":
    main()
