"""Time, bandwidth and arithmetic of each kind of op: ``python -m bench.op_table bench/results/nvidia-h200/step.json``.

From the profile in a file of `bench.step`. Bytes and multiply-adds are the least that the op needs: a matrix read once,
keys and values once for all rows of a sequence, a state read and written once. Percentages are of the read bandwidth
and of the int8 rate that bench/native/ceilings.cu reached in the same run. Times are one block's clock, waits included.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

HEAD = ("op", "ms", "share", "GB", "GB/s", "of read", "TFLOP/s", "of int8")


def rows(ops: dict[str, dict[str, float]], ceilings: dict[str, Any]) -> list[tuple[str, ...]]:
    """One line per op, slowest first; a cell without a figure is empty."""
    total = sum(op["ms"] for op in ops.values())
    found = []
    for name, op in sorted(ops.items(), key=lambda item: -item[1]["ms"]):
        cells = [name, f"{op['ms']:.3f}", f"{op['ms'] / total:.0%}", *[""] * 5]
        if "gb" in op:
            gb_s, tflops = op["gb"] / op["ms"] * 1e3, 2 * op["gmac"] / op["ms"]
            cells[3:5] = [f"{op['gb']:.3g}", f"{gb_s:,.0f}"]
            cells[6] = f"{tflops:.3g}"
            if read := ceilings.get("read_gb_s"):
                cells[5] = f"{gb_s / read:.0%}"
            if int8 := ceilings.get("int8_tops"):
                cells[7] = f"{tflops / int8:.1%}"
        found.append(tuple(cells))
    return found


def markdown(record: dict[str, Any], case: str) -> str:
    lines = [HEAD, ("---", *["--:"] * (len(HEAD) - 1)), *rows(record["ops"][case], record)]
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines])


@click.command(help=__doc__)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--case", "cases", multiple=True, help="Kinds of step, e.g. 12_rows_at_200 or chunk; default: all.")
def main(file: Path, cases: tuple[str, ...]) -> None:
    record = json.loads(file.read_text(encoding="utf-8"))
    if "ops" not in record:
        raise click.ClickException(f"{file} has no times of ops; run bench.step with --ops")
    if unknown := set(cases) - set(record["ops"]):
        raise click.ClickException(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(record['ops'])}")
    for case in cases or record["ops"]:
        click.echo(f"**{case.replace('_', ' ')}**\n\n{markdown(record, case)}\n")
    click.echo(f"{record.get('device')}; {record.get('model')}; commit {record.get('commit')}; {record.get('date')}")


if __name__ == "__main__":
    main()
