"""Run llama-server's own pytest suite against any executable that takes its command line, offline.

The suite comes from a llama.cpp source tree and is neither copied nor edited: the plugin bends it in
memory (local models instead of downloads; class B tests lose the words and counts of one model).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from compat_tests.llama_server.outcomes import classification_counts, mark, report
from compat_tests.llama_server.state import CONFIG_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
File = click.Path(exists=True, path_type=Path, resolve_path=True)


@click.command(help=__doc__)
@click.option("--suite-dir", type=File, required=True, help="llama.cpp/tools/server/tests of a source tree.")
@click.option("--server-bin", type=File, help="Executable that takes llama-server's command line.")
@click.option("--model", type=File, help="GGUF that stands in for the suite's small model.")
@click.option("--infill-model", type=File, help="GGUF with FIM tokens (default: --model).")
@click.option("--moe-model", type=File, help="GGUF for the speculative tests (default: --model).")
@click.option("--draft-model", type=File, help="GGUF of the draft model (default: --model).")
@click.option("--spec-type", default="draft-simple", help="Replaces --spec-type draft-simple, e.g. draft-mtp.")
@click.option("--classes", default="A,B", show_default=True, help="Which classes run.")
@click.option("-k", "--keyword", help="pytest's -k expression.")
@click.option("--file", "files", multiple=True, help="Only this test file; may be repeated.")
@click.option("--server-arg", "server_args", multiple=True,
              help="Extra server argument, left out where a test sets that option; may be repeated.")
@click.option("--threads", default=0, help="--threads of every server (0: leave it out).")
@click.option("--port", default=8080, show_default=True)
@click.option("--start-timeout", default=60, show_default=True, help="Seconds for a server to start.")
@click.option("--test-timeout", default=180, show_default=True, help="Seconds per test.")
@click.option("--record", type=click.Path(path_type=Path), help="Write the model's counts (use the real server).")
@click.option("--expect", type=File, help="Compare the model's counts with a recorded file.")
@click.option("--ceiling", type=File, help="--json file of the real server: its other failures do not count.")
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="Write all outcomes to this file.")
@click.option("--counts", is_flag=True, help="Print the classification and stop.")
@click.option("--warm", is_flag=True, help="Fork pyjet's server from a process that has imported it; not --server-bin.")
@click.option("-v", "--verbose", is_flag=True, help="Show pytest's own output.")
@click.argument("pytest_args", nargs=-1)
def main(suite_dir: Path, counts: bool, **options: Any) -> None:
    if not (suite_dir / "utils.py").is_file() or not (suite_dir / "unit").is_dir():
        raise click.UsageError(f"{suite_dir} is not llama.cpp's tools/server/tests")
    if counts:
        click.echo("\n".join(classification_counts(suite_dir)))
        return
    if not ((options["server_bin"] or options["warm"]) and options["model"]):
        raise click.UsageError("--model and --server-bin (or --warm) are needed")
    missing = [name for name in ("pytest", "requests", "openai") if importlib.util.find_spec(name) is None]
    if missing:
        raise click.UsageError(f"not installed: pip install {' '.join(missing)}")
    data = run_suite(suite_dir, options)
    outcomes, classes = data["outcomes"], options["classes"].split(",")
    ceiling = json.loads(options["ceiling"].read_text(encoding="utf-8"))["outcomes"] if options["ceiling"] else None
    mark(outcomes, ceiling)
    click.echo("\n".join(report(outcomes, classes)))
    _write(options["json_out"], data)
    _write(options["record"], data["seen"])
    failed = any(o["outcome"] == "failed" and not o["excused"] for o in outcomes.values())
    sys.exit(1 if failed or not outcomes else 0)


def run_suite(suite: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Run pytest in a process of its own; returns {"outcomes": ..., "seen": ...}."""
    with tempfile.TemporaryDirectory(prefix="llama-compat-") as folder:
        out = Path(folder) / "outcomes.json"
        command = [
            *(sys.executable, "-m", "pytest", "-p", "compat_tests.llama_server.plugin", "-p", "no:cacheprovider"),
            *("-c", str(suite / "pytest.ini"), "--rootdir", str(suite), "--basetemp", f"{folder}/t", "-q"),
            *([f"unit/{file}" for file in options["files"]] or ["unit"]),
            *(["-k", options["keyword"]] if options["keyword"] else []),
            *([] if options["verbose"] else ["--tb=no", "--no-summary", "--no-header", "-W", "ignore"]),
            *options["pytest_args"],
        ]
        subprocess.run(command, cwd=suite, env=environment(suite, options, out, folder))
        if not out.exists():
            raise click.ClickException("pytest did not run; its output above says why")
        data: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return data


def environment(suite: Path, options: dict[str, Any], out: Path, folder: str) -> dict[str, str]:
    """The suite's environment: the plugin's configuration, and none of the user's server variables."""
    files = ("model", "infill_model", "moe_model", "draft_model", "expect")
    cfg = {
        **{name: str(options[name]) if options[name] else None for name in files},
        "suite": str(suite),
        "out": str(out),
        "classes": options["classes"].split(","),
        "server_args": list(options["server_args"]),
        **{name: options[name] for name in ("spec_type", "threads", "start_timeout", "test_timeout", "warm")},
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_") and k != "LLAMA_API_KEY"}
    return {
        **inherited,
        CONFIG_VARIABLE: json.dumps(cfg),
        "LLAMA_SERVER_BIN_PATH": str(options["server_bin"]),
        "PORT": str(options["port"]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHONPYCACHEPREFIX": f"{folder}/pyc",
        "LLAMA_CACHE": f"{folder}/cache",
        "NO_PROXY": "127.0.0.1,localhost,::1",
    }


def _write(path: Path | None, data: object) -> None:
    if path is not None:
        path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
