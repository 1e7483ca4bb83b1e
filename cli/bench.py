"""pyjet bench: tokens per second of the engine on this machine, beside llama.cpp if wanted."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from pyjet.assets import default_model_path
from pyjet.model.reader import ModelError, load_model
from pyjet.native import NativeError, build_info

from .llama_cpp import XLLAMACPP_VERSION, LlamaCppError
from .speed import LlamaSpeed, PyjetSpeed, SpeedSource, Task, measure


@click.command()
@click.option("-m", "--model", type=click.Path(path_type=Path), help="GGUF file; default: the embedded model.")
@click.option("-t", "--threads", default=os.cpu_count() or 1, show_default=True, help="CPU workers.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="f16", show_default=True, help="KV cache type.")
@click.option("-p", "--prompt", "prompts", type=click.IntRange(1), multiple=True, default=(128, 512, 1024),
              show_default=True, help="Prompt tokens of a prefill run; may be repeated.")
@click.option("-n", "--generate", type=click.IntRange(2), default=128, show_default=True, help="Tokens to decode.")
@click.option("-r", "--repeat", type=click.IntRange(1), default=5, show_default=True, help="Runs; the median counts.")
@click.option("--compare-llama", is_flag=True, help="Run llama.cpp (xllamacpp) in turn, on the same threads.")
@click.option("--min-ratio", type=float, help="With --compare-llama: exit with status 1 below this share of its speed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the JSON to this file.")
def bench(model: Path | None, threads: int, device: str, kv: str, prompts: tuple[int, ...], generate: int, repeat: int,
          compare_llama: bool, min_ratio: float | None, as_json: bool, out: Path | None) -> None:
    """Measure prefill and decode speed in tokens per second.

    Prefill: a prompt of random tokens on an empty context, in steps of up to 512 rows, until the
    logits of its last token are there. Decode: one greedy token at a time after a prompt of 64.
    One sequence, no HTTP. With --compare-llama the two engines take turns, so that both see the same
    machine; the ratio is pyjet / llama.cpp.
    """
    path = model or default_model_path()
    load = os.getloadavg()[0]
    if load > 0.5:
        click.echo(f"other programs are running (load average {load:.1f}): the figures will be too low", err=True)
    tasks = [*(Task("prefill", size) for size in prompts), Task("decode", generate)]
    try:
        sources = open_sources(path, tasks, threads, device, kv, compare_llama)
        speeds = measure(sources, tasks, repeat)
    except (ModelError, NativeError, LlamaCppError, OSError) as error:
        raise click.ClickException(str(error)) from error
    record = {
        "what": "one sequence, tokens per second, median of the runs",
        "date": time.strftime("%Y-%m-%d"),
        "model": path.name,
        "device": sources[0].device_name,
        "threads": threads,
        "load_average_before": round(load, 1),
        "kv": kv,
        "repeat": repeat,
        "pyjet": build_info(),
        "llama_cpp": f"xllamacpp {XLLAMACPP_VERSION}" if compare_llama else None,
        "results": rows(tasks, speeds),
    }
    for source in sources:
        source.close()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    click.echo(json.dumps(record, indent=1) if as_json else table(record))
    sys.exit(verdict(record, min_ratio, quiet=as_json))


def open_sources(path: Path, tasks: list[Task], threads: int, device: str, kv: str, compare: bool) -> list[SpeedSource]:
    n_ctx = max(task.context for task in tasks)
    sources: list[SpeedSource] = [PyjetSpeed(load_model(path), n_ctx, kv, threads, device)]
    if compare:
        sources.append(LlamaSpeed(path, n_ctx, kv, threads))
    return sources


def rows(tasks: list[Task], speeds: dict[str, dict[Task, list[float]]]) -> list[dict[str, Any]]:
    """One record per task: median tok/s of each engine, its extremes, and the ratio of the medians."""
    found = []
    for task in tasks:
        record: dict[str, Any] = {"task": task.name, "tokens": task.tokens}
        for engine, by_task in speeds.items():
            ordered = sorted(by_task[task])
            record[engine] = round(ordered[len(ordered) // 2], 1)
            record[f"{engine}_min_max"] = [round(ordered[0], 1), round(ordered[-1], 1)]
        if "llama.cpp" in speeds:
            record["ratio"] = round(record["pyjet"] / record["llama.cpp"], 3)
        found.append(record)
    return found


def table(record: dict[str, Any]) -> str:
    compared = record["llama_cpp"] is not None
    lines = [f"{record['model']}, {record['device']}, {record['threads']} threads, {record['kv']} KV"]
    lines.append(f"{'tokens per second':20} {'pyjet':>10}" + (f" {'llama.cpp':>10} {'ratio':>7}" if compared else ""))
    for row in record["results"]:
        line = f"{row['task']} {row['tokens']:<12} "
        line = f"{line:20} {row['pyjet']:10.1f}"
        lines.append(line + (f" {row['llama.cpp']:10.1f} {row['ratio']:7.2f}" if compared else ""))
    return "\n".join(lines)


def verdict(record: dict[str, Any], min_ratio: float | None, *, quiet: bool) -> int:
    """Exit status, with a closing line that says why."""
    if min_ratio is None or record["llama_cpp"] is None:
        return 0
    slow = [f"{row['task']} {row['tokens']}" for row in record["results"] if row["ratio"] < min_ratio]
    if not quiet:
        found = f"below the bound: {', '.join(slow)}" if slow else "all met"
        click.echo(f"bound: {min_ratio:g} x llama.cpp: {found}")
    return 1 if slow else 0
