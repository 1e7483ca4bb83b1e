"""Compare pyjet with llama.cpp: ``make kl``, ``make kl ARGS="--device cuda"``, ``make kl ARGS="--model FILE"``."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from cli.llama_cpp import LlamaCppError, LlamaModel
from cli.sequence import open_engine
from compat_tests.kl.bound import KvResult, Verdict, judge, misses
from compat_tests.kl.divergence import stack
from compat_tests.kl.measure import JobResult
from compat_tests.kl.plan import KV_TYPES, run_all
from compat_tests.kl.report import f16_note, record, save, table
from compat_tests.kl.texts import WINDOWS_PER_KIND, TextError, windows
from pyjet.assets import default_model_path
from pyjet.model.reader import ModelError, load_model
from pyjet.native.config import Device
from tests.support.requantize import requantize

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
WEIGHTS = ("Q4_K_M", "F16", "Q8_0")


def merge(kv_type: str, by_window: dict[int, JobResult]) -> KvResult:
    """One file's result of its windows."""
    parts = [by_window[i] for i in sorted(by_window)]
    nudged = [part.nudged for part in parts if part.nudged]
    return KvResult(
        kv_type=kv_type,
        own={pair: stack([part.own[pair] for part in parts]) for pair in parts[0].own},
        ours={mode: stack([part.ours[mode] for part in parts]) for mode in parts[0].ours},
        paths_equal=all(part.paths_equal for part in parts),
        nudged=stack(nudged) if nudged else None,
    )


def run(
    path: Path, as_it_is: str, weights: Sequence[str], per_kind: int, processes: int, device: Device
) -> tuple[list[Verdict], list[KvResult]]:
    """Measure and judge a file with every KV type: with its own weights, which `as_it_is` names, and with others."""
    with LlamaModel(path) as llama:
        suite = windows(load_model(path), llama, per_kind)
    click.echo(f"{sum(len(w.tokens) for w in suite)} tokens in {len(suite)} windows, {processes} processes", err=True)
    with tempfile.TemporaryDirectory(prefix="pyjet-kl-") as folder:
        files = {
            name: path if name == as_it_is else requantize(path, Path(folder) / f"{name}.gguf", name)
            for name in weights
        }
        found = run_all(files, suite, processes, Path(folder), device)
    verdicts: list[Verdict] = []
    results: list[KvResult] = []
    for name in weights:
        of_file = [merge(kv_type, found[name, kv_type]) for kv_type in KV_TYPES]
        verdicts += judge(name, of_file)
        results += of_file
    return verdicts, results


def tested(device: Device) -> str:
    """The GPU, or the instruction set that the engine picks on this processor."""
    with open_engine(load_model(default_model_path()), 1, max_rows=1, n_threads=1, device=device) as engine:
        info = engine.info()
        return info.isa if device == "cpu" else info.device_name


def results_file(device: Device, name: str) -> Path:
    """Where the figures of a device go: those of a GPU into its folder."""
    return RESULTS / "kl-cpu.json" if device == "cpu" else RESULTS / name.lower().replace(" ", "-") / "kl.json"


def known_weights(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    names = value.split(",") if value else []
    unknown = [name for name in names if name not in WEIGHTS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]} is not one of {', '.join(WEIGHTS)}")
    return names or None


@click.command()
@click.option("--model", "path", type=click.Path(path_type=Path, exists=True), help="A GGUF.  [default: the embedded]")
@click.option("--weights", callback=known_weights,
              help=f"Which files.  [default: {','.join(WEIGHTS)}; with --model: it alone]")
@click.option("--windows", "per_kind", type=click.IntRange(1), default=WINDOWS_PER_KIND, show_default=True,
              help="Of each kind of text.")
@click.option("--jobs", type=click.IntRange(1), help="Processes, of one thread each.  [default: one per core]")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="pyjet's.")
@click.option("--out", type=click.Path(path_type=Path),
              help="Where the figures go as JSON.  [default: bench/results; with --model: nowhere]")
def main(
    path: Path | None, weights: list[str] | None, per_kind: int, jobs: int | None, device: Device, out: Path | None
) -> None:
    """KL divergence of pyjet to llama.cpp's CPU backend on Python source and agent chats.

    The embedded model is compared as it is and after its weights were rewritten as F16 and Q8_0, each
    with f16 and q8_0 KV. llama.cpp computes every window in several ways; the divergence between these
    is the measure for pyjet's to them (F16: mean below 1e-4). docs/numerics.md explains the figures.
    Exit status 1 when a bound is missed or when pyjet's logits depend on how the rows were cut.
    """
    started = time.monotonic()
    try:
        what = tested(device)
        file, as_it_is = path or default_model_path(), load_model(path).ftype_name.split()[0] if path else WEIGHTS[0]
        chosen = weights or ([as_it_is] if path else list(WEIGHTS))
        verdicts, results = run(file, as_it_is, chosen, per_kind, jobs or len(os.sched_getaffinity(0)), device)
    except (LlamaCppError, ModelError, TextError) as error:
        raise click.ClickException(str(error)) from error
    seconds = time.monotonic() - started
    content = record(verdicts, results, what, seconds)
    if out or not path:
        save(out or results_file(device, what), content)
    missed = [sentence for verdict in verdicts for sentence in misses(verdict)]
    for sentence in filter(None, [f16_note(verdicts), *(f"missed: {sentence}" for sentence in missed)]):
        click.echo(sentence)
    state = "bounds missed" if missed else "all bounds met"
    click.echo(f"{content['tokens']} tokens in {seconds:.0f} s, {state}; row paths equal: {_paths(verdicts)}\n")
    click.echo(table(verdicts))
    sys.exit(1 if missed else 0)


def _paths(verdicts: Sequence[Verdict]) -> str:
    return "yes" if all(verdict.paths_equal for verdict in verdicts) else "no"


if __name__ == "__main__":
    main()
