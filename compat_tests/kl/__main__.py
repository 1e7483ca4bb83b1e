"""Compare pyjet's CPU backend with llama.cpp: ``make kl``."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import click

from cli.llama_cpp import XLLAMACPP_VERSION, LlamaCppError, LlamaModel, Tokens
from compat_tests.kl.oracle import MODES, llama_logits
from compat_tests.kl.pyjet_logits import pyjet_logits, same_bits
from compat_tests.kl.report import FileResult, divergence, misses, table
from compat_tests.kl.texts import chat_texts, code_texts
from pyjet.assets import default_model_path
from pyjet.model.reader import load_model
from pyjet.model.tokenizer import Tokenizer
from pyjet.native import build_info
from tests.support.requantize import requantize

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "kl-cpu.json"
KV_TYPES = ("f16", "q8_0")


def suite_tokens(path: Path, tokens_per_text: int) -> list[Tokens]:
    """Token ids of every text, from llama.cpp's tokenizer, which ours must agree with."""
    model = load_model(path)
    ours = Tokenizer.from_metadata(model.metadata)
    found = []
    with LlamaModel(path) as llama:
        for text in [*code_texts(), *chat_texts(model)]:
            ids = llama.tokenize(text.content)
            if ours.encode(text.content) != ids.tolist():
                raise click.ClickException(f"the tokenizers disagree on {text.name}")
            found.append(ids[:tokens_per_text])
    return found


def compare(path: Path, weights: str, kv_type: str, texts: list[Tokens], n_threads: int) -> FileResult:
    """All comparisons of one file with one KV type."""
    model = load_model(path)
    ours = [pyjet_logits(model, tokens, kv_type, n_threads) for tokens in texts]
    with LlamaModel(path) as llama:
        theirs = {mode: [llama_logits(llama, tokens, mode, kv_type, n_threads) for tokens in texts] for mode in MODES}
    prefill = [paths["prefill"] for paths in ours]
    return FileResult(
        weights=weights,
        kv_type=kv_type,
        noise=divergence(zip(theirs["single"], theirs["batch"])),
        versus={mode: divergence(zip(theirs[mode], prefill)) for mode in MODES},
        paths_equal=all(same_bits(paths) for paths in ours),
    )


def save(results: list[FileResult], path: Path, seconds: float) -> None:
    record = {
        "what": "KL divergence to llama.cpp, nats",
        "date": time.strftime("%Y-%m-%d"),
        "pyjet": build_info(),
        "llama_cpp": f"xllamacpp {XLLAMACPP_VERSION}",
        "seconds": round(seconds),
        "misses": misses(results),
        "results": [result.as_dict() for result in results],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


@click.command()
@click.option("--tokens", default=640, show_default=True, help="Tokens of each of the four texts.")
@click.option("--threads", default=1, show_default=True, help="CPU workers of both engines.")
@click.option("--weights", default="Q4_K_M,F16,Q8_0", show_default=True, help="Which files, comma-separated.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, help="Where the figures go as JSON.")
def main(tokens: int, threads: int, weights: str, out: Path) -> None:
    """KL divergence of pyjet's CPU backend to llama.cpp on Python source and agent chats.

    The embedded model is compared as it is and after its weights were rewritten as F16 and Q8_0, each
    with f16 and q8_0 KV. llama.cpp computes every text twice, in one batch and token by token; the
    divergence between these two is the measure for ours against each of them (F16: mean below 1e-4).
    Exit status 1 when ours leaves that class or when our logits depend on how the rows were cut.
    """
    started = time.monotonic()
    try:
        results = run(tokens, threads, weights.split(","))
    except LlamaCppError as error:
        raise click.ClickException(str(error)) from error
    click.echo(table(results))
    missed = misses(results)
    for sentence in missed:
        click.echo(f"missed: {sentence}")
    click.echo(f"{results[0].noise.rows} tokens, {'bounds missed' if missed else 'all bounds met'}")
    save(results, out, time.monotonic() - started)
    sys.exit(1 if missed else 0)


def run(tokens: int, threads: int, weights: list[str]) -> list[FileResult]:
    """Every file with every KV type; progress goes to stderr."""
    embedded = default_model_path()
    texts = suite_tokens(embedded, tokens)
    click.echo(f"{sum(map(len, texts))} tokens in {len(texts)} texts, {threads} threads", err=True)
    results = []
    with tempfile.TemporaryDirectory(prefix="pyjet-kl-") as folder:
        for name in weights:
            path = embedded if name == "Q4_K_M" else requantize(embedded, Path(folder) / f"{name}.gguf", name)
            for kv_type in KV_TYPES:
                click.echo(f"  {name}, {kv_type} KV ...", err=True)
                results.append(compare(path, name, kv_type, texts, threads))
    return results


if __name__ == "__main__":
    main()
