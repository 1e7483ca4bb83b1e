"""Where the multiprocessors are during a step: ``python -m bench.op_trace MODEL.gguf --rows 12``.

Needs a library that was built with -DPJ_TRACE=ON (PYJET_LIBRARY names it) and a model in K-quants. For every kind of
op, medians over its calls in microseconds: from the end of the stage before to its own end; until a block has its
input; then until the block is done, median and longest; of products also the units of a block's first group of warps
and how long that waited for weights and for activations in all. The recording itself costs some percent.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
import numpy.typing as npt

from bench.step_rows import PAGE_TOKENS, decode_rows, make_batch, pages_for
from pyjet.model.reader import Model, load_model
from pyjet.native import EngineConfig, NativeEngine, library_path

CTAS, OPS, EVENTS = 160, 1024, 8  # native/cuda/sync/trace.cuh
BEGIN, INPUT, DONE, END, UNITS, WEIGHT_WAIT, ACT_WAIT = range(7)
GDN = ("residual", "projections", "convolve", "gdn", "quant_heads", "output")
ATTENTION = ("residual", "qkv", "rotate", "attention", "merge_heads", "output")
FEED_FORWARD = ("residual", "gate_up", "swiglu", "down")
PRODUCTS = {"projections", "qkv", "output", "gate_up", "down", "head"}
HEAD = ("op", "calls", "total", "input", "work", "longest", "units", "weights", "activations", "sum, ms")

Floats = npt.NDArray[np.float64]


def op_names(model: Model) -> list[str]:
    """The ops of a step in order (native/cuda/compiler.cc), for weights in K-quants."""
    names = ["embed"]
    for is_attention in model.hyperparams.block_is_attention:
        names += [*(ATTENTION if is_attention else GDN), *FEED_FORWARD]
    return [*names, "residual", "select", "head", "logits"]


def read_trace() -> npt.NDArray[np.int64]:
    """int64[CTAS, OPS, EVENTS] of the last step."""
    library = ctypes.CDLL(str(library_path()))
    if not hasattr(library, "pj_trace_read"):
        raise click.ClickException(f"{library_path()} records nothing; build it with -DPJ_TRACE=ON")
    values = np.zeros((CTAS, OPS, EVENTS), np.int64)
    if library.pj_trace_read(values.ctypes.data_as(ctypes.c_void_p)):
        raise click.ClickException("the trace cannot be read")
    return values


def align(values: npt.NDArray[np.int64], names: list[str]) -> Floats:
    """Times in cycles of a common clock, float64[blocks, ops, 4]; NaN where a block recorded none.

    All blocks leave a stage's wait at nearly the same moment. Their clocks drift by some tenths of a percent, so each
    is bent by a cubic that fits these moments.
    """
    times = values[:, : len(names), : END + 1].astype(np.float64)
    times[times == 0] = np.nan
    times -= times[0, 0, BEGIN]
    shared = [i for i, name in enumerate(names) if name not in PRODUCTS and not np.isnan(times[:, i, INPUT]).any()]
    reference = times[0, shared, INPUT]
    out = np.empty_like(times)
    for _ in range(2):
        for block, own in enumerate(times):
            at = own[shared, INPUT]
            scale = at[-1] - at[0]
            error = np.full(len(at), 0.0)
            for degree in (1, 3):  # waits that ended late are no measure
                keep = np.abs(error) <= 2 * np.median(np.abs(error)) + 1
                bend = np.polynomial.Polynomial.fit(at[keep] / scale, (reference - at)[keep], degree)
                error = bend(at / scale) - (reference - at)
            out[block] = own + bend(own / scale)
        reference = np.median(out[:, shared, INPUT], axis=0)
    return out


def table(values: npt.NDArray[np.int64], names: list[str], cycles_per_us: float) -> list[tuple[str, ...]]:
    """A line per kind of op, in the order of a step."""
    values = values[(values[:, 0, BEGIN] > 0)]
    times = align(values, names) / cycles_per_us
    rows: dict[str, list[list[float]]] = {}
    before = float(np.nanmax(times[:, 0, END]))
    for i, name in enumerate(names[1:-1], start=1):  # the last op ends without a stage
        inputs, ends = times[:, i, INPUT], times[:, i, END]
        work, end = ends - inputs, float(np.nanmax(ends))
        cells = [end - before, np.nanmedian(inputs) - before, np.nanmedian(work), np.nanmax(work)]
        counts = values[:, i, [UNITS, WEIGHT_WAIT, ACT_WAIT]].astype(np.float64)
        counts = counts[counts[:, 0] > 0]
        if len(counts):
            units, weights, acts = np.median(counts, axis=0)
            cells += [units, weights / cycles_per_us, acts / cycles_per_us]
        rows.setdefault(name, []).append([float(cell) for cell in cells])
        before = end
    lines = []
    for name, calls in rows.items():
        medians = np.median(np.array(calls), axis=0)
        total = sum(call[0] for call in calls) * 1e-3
        cells = [f"{value:.2f}" for value in medians] + [""] * (7 - len(medians))
        lines.append((name, str(len(calls)), *cells, f"{total:.3f}"))
    return lines


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--rows", default=1, show_default=True, help="Of the step; three for each sequence if several.")
@click.option("--position", default=200, show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
def main(model: Path, rows: int, position: int, kv: str) -> None:
    loaded = load_model(model)
    each = 1 if rows < 3 else 3
    parts = decode_rows(-(-rows // each), each, position)
    sizes: dict[str, Any] = {"device": "cuda", "page_tokens": PAGE_TOKENS, "kv_type_k": kv, "kv_type_v": kv}
    n_pages = len(parts) * pages_for(position + each)
    with NativeEngine(loaded, EngineConfig(n_pages, len(parts), max_rows=64, **sizes)) as engine:
        batch = make_batch(parts, engine.n_vocab)
        step_us = [engine.step(batch).step_us for _ in range(5)][-1]
        values = read_trace()
    first = cast(int, values[0, 0, BEGIN])
    names = op_names(loaded)
    lines = table(values, names, (int(values[0, len(names) - 2, END]) - first) / step_us)
    widths = [max(len(line[i]) for line in [HEAD, *lines]) for i in range(len(HEAD))]
    for line in (HEAD, *lines):
        click.echo("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    click.echo(f"{len(batch.tokens)} rows at {position:,}, {step_us / 1e3:.2f} ms with the recording")


if __name__ == "__main__":
    main()
