"""Micro-benchmark of the product kernels: ``python -m bench.ops``.

Each figure is the best of several runs of one y = x W^T with the weights packed beforehand, the
quantisation of x included. GMAC/s counts multiply-adds; GB/s is the weight bytes of the file per
second, the figure to compare with the memory's speed when few rows are multiplied. These are the CPU's
kernels; the ops of a step on a GPU, which run inside of one kernel, are in `bench.op_table`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from pyjet.native import build_info, cpu_isa, matmul
from pyjet.native.config import ISAS, Isa

TYPES = "Q4_K,Q6_K,Q8_0,Q5_K,IQ4_XS,Q4_0,F16"
RUN_US = 20_000.0  # length of one timed run


def weight_bytes(number: GGMLQuantizationType, n_in: int, n_out: int) -> np.ndarray:
    """Bytes without infinities or NaN in any type; speed does not depend on the values."""
    elements, n_bytes = GGML_QUANT_SIZES[number]
    return np.random.default_rng(0).integers(0, 0x3C, n_out * n_in // elements * n_bytes, dtype=np.uint8)


def best_us(
    number: GGMLQuantizationType, shape: tuple[int, int], n_rows: int, isa: Isa, threads: int, tries: int
) -> float:
    """Best mean microseconds of a product over `tries` runs of RUN_US each."""
    n_in, n_out = shape
    weight = weight_bytes(number, n_in, n_out)
    x = np.random.default_rng(1).standard_normal((n_rows, n_in)).astype(np.float32)

    def run(repeat: int) -> float:
        return matmul(number, weight, n_in, n_out, x, isa=isa, n_threads=threads, repeat=repeat)[1]

    repeat = max(2, int(RUN_US / max(run(2), 1.0)))
    return min(run(repeat) for _ in range(tries))


def measure(
    types: list[str], shapes: list[tuple[int, int]], rows: list[int], isa: Isa, threads: int, tries: int
) -> Iterator[dict[str, Any]]:
    for name in types:
        number = GGMLQuantizationType[name]
        elements, n_bytes = GGML_QUANT_SIZES[number]
        for n_in, n_out in shapes:
            for n_rows in rows:
                us = best_us(number, (n_in, n_out), n_rows, isa, threads, tries)
                yield {
                    "type": name,
                    "n_in": n_in,
                    "n_out": n_out,
                    "rows": n_rows,
                    "us": us,
                    "gmac_s": n_rows * n_in * n_out / us / 1e3,
                    "gb_s": n_out * n_in / elements * n_bytes / us / 1e3,
                }


def table(results: list[dict[str, Any]]) -> str:
    """GMAC/s, one line per type and shape, one column per number of rows; GB/s of the fewest rows."""
    rows = sorted({r["rows"] for r in results})
    head = f"{'weights':>8} {'n_in':>6} {'n_out':>6}" + "".join(f"{f'{n} rows':>10}" for n in rows)
    lines = [f"{head}   GB/s at {rows[0]}"]
    for key in dict.fromkeys((r["type"], r["n_in"], r["n_out"]) for r in results):
        found = {r["rows"]: r for r in results if (r["type"], r["n_in"], r["n_out"]) == key}
        cells = "".join(f"{found[n]['gmac_s']:>10.1f}" for n in rows)
        lines.append(f"{key[0]:>8} {key[1]:>6} {key[2]:>6}{cells}{found[rows[0]]['gb_s']:>12.1f}")
    return "\n".join(lines)


def parse_shapes(text: str) -> list[tuple[int, int]]:
    try:
        shapes = [tuple(int(n) for n in shape.split("x")) for shape in text.split(",")]
        return [(n_in, n_out) for n_in, n_out in shapes]
    except ValueError:
        raise click.BadParameter(f"{text!r}: shapes look like 1024x1024,1024x3072 (inputs x outputs)") from None


@click.command(help=__doc__.split("\n\n", 1)[0] if __doc__ else None)
@click.option("--types", default=TYPES, show_default=True, help="weight types, by their GGUF names")
@click.option("--shapes", default="1024x1024", show_default=True, help="inputs x outputs, comma-separated")
@click.option("--rows", default="1,2,4,8,64,256", show_default=True, help="numbers of rows")
@click.option("--isa", default="auto", type=click.Choice(ISAS), show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--tries", default=5, show_default=True, help="runs of which the best counts")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="write all figures to this file")
def main(types: str, shapes: str, rows: str, isa: Isa, threads: int, tries: int, json_path: Path | None) -> None:
    sizes, counts = parse_shapes(shapes), [int(n) for n in rows.split(",")]
    results = list(measure(types.split(","), sizes, counts, isa, threads, tries))
    used = cpu_isa() if isa == "auto" else isa
    if json_path:
        record = {"library": build_info(), "isa": used, "threads": threads, "results": results}
        json_path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    click.echo(f"GMAC/s, {used}, {threads} threads")
    click.echo(table(results))


if __name__ == "__main__":
    main()
