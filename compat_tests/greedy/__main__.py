"""Compare greedy answers with llama.cpp's: ``make greedy``, ``make greedy ARGS="--model FILE"``."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import click

from bench.dense_shapes import DENSE_PRESETS
from bench.make_synthetic_gguf import write_synthetic
from cli.llama_cpp import LlamaCppError, LlamaModel
from compat_tests.greedy.answers import Job, run_job
from compat_tests.greedy.difference import Verdict
from compat_tests.greedy.prompts import prompts
from compat_tests.greedy.report import record, sentence, table
from compat_tests.kl.measure import workers
from compat_tests.kl.report import save
from compat_tests.kl.texts import TextError
from compat_tests.llama_server.models import ModelFileError, smollm2_file, tiny_file
from pyjet.model.reader import ModelError, load_model
from pyjet.native import cpu_isa

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "greedy-cpu.json"


def default_files(folder: Path) -> dict[str, Path]:
    """The embedded model, a small `llama` that is published and a `qwen3` of random weights, written to a folder."""
    random = folder / "qwen3.gguf"
    write_synthetic(random, replace(DENSE_PRESETS["micro-qwen3"], n_vocab=600), type_name="Q8_0", pool_bytes=1 << 20)
    return {
        "pyjet-tiny (qwen35, Q4_K_M)": tiny_file(),
        "SmolLM2-135M (llama, Q4_1)": smollm2_file(),
        "random weights (qwen3, Q8_0)": random,
    }


def judge(path: Path, per_kind: int, n_tokens: int, processes: int) -> Verdict:
    """Answer all prompts of a file with both engines."""
    with LlamaModel(path) as llama:
        suite = prompts(load_model(path), llama, per_kind)
    with workers(processes) as executor:
        return Verdict(list(executor.map(run_job, [Job(path, prompt, n_tokens) for prompt in suite])))


@click.command()
@click.option("--model", "path", type=click.Path(path_type=Path, exists=True),
              help="A GGUF.  [default: the embedded model, SmolLM2-135M and a random qwen3]")
@click.option("--prompts", "per_kind", type=click.IntRange(1), default=8, show_default=True,
              help="Of each kind: source and chats.")
@click.option("--tokens", "n_tokens", type=click.IntRange(1), default=64, show_default=True, help="Of an answer.")
@click.option("--jobs", type=click.IntRange(1), help="Processes, of one thread each.  [default: one per core]")
@click.option("--out", type=click.Path(path_type=Path),
              help="Where the figures go as JSON.  [default: bench/results; with --model: nowhere]")
def main(path: Path | None, per_kind: int, n_tokens: int, jobs: int | None, out: Path | None) -> None:
    """Greedy answers of pyjet's CPU backend beside llama.cpp's, on Python source and agent chats.

    Both write an answer token by token with f16 KV. Where they part, pyjet's logit of its own choice may be
    above that of llama.cpp's choice by no more than llama.cpp moves the two best logits of a row against
    each other when it computes its answers again in other batches. Exit status 1 when one is.
    """
    started = time.monotonic()
    processes = jobs or len(os.sched_getaffinity(0))
    try:
        with tempfile.TemporaryDirectory(prefix="pyjet-greedy-") as folder:
            files = {path.name: path} if path else default_files(Path(folder))
            verdicts = {name: judge(file, per_kind, n_tokens, processes) for name, file in files.items()}
    except (LlamaCppError, ModelError, ModelFileError, TextError) as error:
        raise click.ClickException(str(error)) from error
    seconds = time.monotonic() - started
    if out or not path:
        save(out or RESULTS, record(verdicts, n_tokens, cpu_isa(), seconds))
    beyond = [sentence(name, d, v.bound) for name, v in verdicts.items() for d in v.beyond]
    for line in beyond:
        click.echo(f"missed: {line}")
    click.echo(f"{seconds:.0f} s, {'bounds missed' if beyond else 'all bounds met'}\n")
    click.echo(table(verdicts))
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
