"""Write the README's tables from bench/results/*.json: ``python -m bench.report``.

In the README a table stands between `<!-- table: NAME -->` and `<!-- end -->`; everything between
these lines is replaced. `--check` changes nothing and fails when the README is not up to date.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bench import bounds
from bench.report_speculation import acceptance_table, speculation_table, temperature_table
from bench.report_text import markdown, run_note

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
NOT_MEASURED = "Not measured yet.\n"
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def kl_table(record: dict[str, Any]) -> str:
    """KL divergence: for every file llama.cpp's own figures, then pyjet to llama.cpp with each KV type.

    A KV type whose bound counts the nudged file has its own line of llama.cpp's figures.
    """
    rows: list[list[str]] = []
    files: set[str] = set()
    for result in record["results"]:
        weights = result["weights"]
        if weights not in files:
            files.add(weights)
            rows.append([f"{weights}: llama.cpp itself", *_kl_figures(result["llama_cpp_own"])])
        elif result["llama_cpp_nudged"]:
            label = f"{weights}, {result['kv']} KV: llama.cpp, nudged"
            rows.append([label, *_kl_figures(result["llama_cpp_own"])])
        rows.append([f"{weights}, {result['kv']} KV: pyjet", *_kl_figures(result["pyjet_pooled"])])
        rows.append(["ratio ± standard error", *result["compared"].values()])
    fewer = {r["weights"]: r["tokens"] for r in record["results"] if r["tokens"] != record["tokens"]}
    exceptions = "".join(f" ({weights}: {tokens})" for weights, tokens in fewer.items())
    note = (
        f"{record['tokens']} tokens{exceptions} of Python source and agent chats in windows of "
        f"{record['window_tokens']}; "
        f"{record['pyjet']}; {record['device']}; {record['llama_cpp']}; {record['date']}."
    )
    return markdown(["KL divergence, nats", "mean", "median", "99%", "max", "same top token"], rows, note)


def greedy_table(record: dict[str, Any]) -> str:
    """Greedy answers: how many are those of llama.cpp, and how close the choice was where they part."""
    rows = []
    for result in record["results"]:
        gaps = [difference["gap"] for difference in result["differences"]]
        own = min(result["llama_cpp_same"].values())
        gap = f"{max(gaps):.3f}" if gaps else ""
        rows.append([
            result["file"], str(result["prompts"]), f"{result['same']:.0%}", f"{own:.0%}", gap,
            f"{result['bound']:.3f}", str(result["beyond"]),
        ])  # fmt: skip
    note = (
        f"At most {record['answer_tokens']} tokens behind at most {record['prompt_tokens']} of Python source and agent "
        f"chats, f16 KV; {record['pyjet']}; {record['device']}; {record['llama_cpp']}; {record['date']}."
    )
    head = ["file", "prompts", "same answer", "llama.cpp itself", "largest gap", "its bound", "beyond"]
    return markdown(head, rows, note)


def _kl_figures(d: dict[str, float]) -> list[str]:
    return [*(f"{d[name]:.2e}" for name in ("mean", "median", "p99", "max")), f"{d['top1']:.2%}"]


def bench_table(record: dict[str, Any]) -> str:
    """Tokens per second of one sequence beside llama.cpp."""
    rows = [
        [f"{r['task']} {r['tokens']}", f"{r['pyjet']:,.0f}", f"{r['llama.cpp']:,.0f}", f"{r['ratio']:.2f}"]
        for r in record["results"]
    ]
    note = (
        f"{record['model']}, {record['device']}, {record['threads']} thread(s), {record['kv']} KV, median of "
        f"{record['repeat']}; {record['llama_cpp']}; {record['date']}."
    )
    return markdown(["tokens per second", "pyjet", "llama.cpp", "ratio"], rows, note)


def eval_table(record: dict[str, Any]) -> str:
    """Chats whose tool calls are exactly right."""
    rows = [[kind, f"{right} of {total}"] for kind, (right, total) in record["by_kind"].items()]
    note = f"llama.cpp on the same file: {record['bound']} of {record['total']}; {record['date']}."
    return markdown(["chats", "right"], rows, note)


def step_table(record: dict[str, Any]) -> str:
    """Milliseconds of a step by rows and position; empty where nothing was measured."""
    found = [match.groups() for key in record if (match := re.fullmatch(r"ms_(\d+)_rows_at_(\d+)", key))]
    positions, counts = (sorted({int(pair[i]) for pair in found}) for i in (1, 0))

    def cell(rows: int, position: int) -> str:
        ms = record.get(f"ms_{rows}_rows_at_{position}")
        return "" if ms is None else f"{ms:.2f}"

    rows = [[f"{n} row{'s' * (n > 1)}", *(cell(n, position) for position in positions)] for n in counts]
    note = f"{record['model']}, random weights, {record['kv']} KV; {run_note(record)}"
    return markdown(["ms a step", *(f"at {position:,}" for position in positions)], rows, note)


def bounds_table(record: dict[str, Any]) -> str:
    """The recorded bounds, those that were measured."""
    rows = [[b.text, value, b.wanted, verdict] for b, value, verdict in bounds.lines(record) if value]
    return markdown(["figure", "measured", "bound", ""], rows, run_note(record))


AGENT_FIGURES = (  # key, how it is shown
    ("followup_ttft_s_4x23k", "{:.2f}"),
    ("decode_share_during_prefill", "{:.2f}"),
    ("longest_pause_s", "{:.2f}"),
    ("prompt_slowdown", "{:.2f}"),
)


def agents_table(record: dict[str, Any]) -> str:
    """What agents wait for, beside llama-server with its defaults and tuned; empty where nothing was measured."""
    found = {bound.key: (bound, verdict) for bound, _, verdict in bounds.lines(record)}
    rows = []
    for key, form in AGENT_FIGURES:
        bound, verdict = found[key]
        values = [record.get(prefix + key) for prefix in ("", "llama_cpp_", "llama_cpp_tuned_")]
        shown = ["" if value is None else form.format(value) for value in values]
        rows.append([bound.text, *shown, bound.wanted, verdict])
    note = f"{record['sizes']}; {record['model']}, random weights; {run_note(record)}"
    return markdown(["", "pyjet", "llama.cpp", "tuned", "bound", ""], rows, note)


def clients_table(record: dict[str, Any]) -> str:
    """Clients that changed a file through the server, with all APIs that each of them used."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in record["clients"]:
        version = f"{row['package']} {row['version']}".strip()
        found.setdefault((row["client"], version, row["model"]), []).append(row)
    rows = []
    for (client, version, model), of_client in found.items():
        apis = dict.fromkeys(row["api"].removesuffix(", streamed") for row in of_client)
        result = "ok" if all(row["result"] == "ok" for row in of_client) else "FAILED"
        rows.append([client, version, ", ".join(f"`{api}`" for api in apis), model, result])
    lines = [["client", "version", "API", "model", "result"], ["---"] * 5, *rows]
    note = f"pyjet {record['pyjet']}, embedded model, CPU; {record['date']}."
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{note}\n"


# table name -> (results file, renderer)
TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "kl-cpu": ("kl-cpu.json", kl_table),
    "greedy-cpu": ("greedy-cpu.json", greedy_table),
    "bench-cpu": ("bench-cpu.json", bench_table),
    "eval-chats": ("eval-chats.json", eval_table),
    "clients": ("clients.json", clients_table),
    "step-h200": ("nvidia-h200/step.json", step_table),
    "bounds-h200": ("nvidia-h200/step.json", bounds_table),
    "agents-h200": ("nvidia-h200/agents.json", agents_table),
    "speculation-h200": ("nvidia-h200/speculation.json", speculation_table),
    "acceptance": ("acceptance.json", acceptance_table),
    "acceptance-temperature": ("acceptance.json", temperature_table),
}


def render(name: str) -> str:
    """The named table, from its results file; a line that says so when there is none yet."""
    if name not in TABLES:
        raise click.ClickException(f"the README names an unknown table: {name}")
    file, renderer = TABLES[name]
    if not (RESULTS / file).exists():
        return NOT_MEASURED
    return renderer(json.loads((RESULTS / file).read_text(encoding="utf-8")))


def fill(text: str) -> str:
    """The text with every marked table replaced."""
    return MARKED.sub(lambda match: match[1] + render(match["name"]) + match[3], text)


@click.command(help=__doc__)
@click.option("--check", is_flag=True, help="Fail when the README differs from the results.")
@click.option("--file", type=click.Path(path_type=Path), default=ROOT / "README.md", show_default=False)
def main(check: bool, file: Path) -> None:
    old = file.read_text(encoding="utf-8")
    new = fill(old)
    if check:
        click.echo("up to date" if new == old else f"{file.name} is out of date: python -m bench.report")
        sys.exit(int(new != old))
    file.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
