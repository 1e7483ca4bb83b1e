"""Time of one engine step by rows and context: ``python -m bench.step MODEL.gguf --device cuda``.

Decode steps carry one or a few rows of several sequences at a position, prefill steps one prompt chunk. KV pages and
states hold zeros, so only speed means anything; make the file with `bench.make_synthetic_gguf`. Before anything is
timed, the same rows alone and beside others are compared bit by bit: no figure without that verdict.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from pyjet.model.reader import load_model
from pyjet.native import ROW_ARGMAX, ROW_LOGITS, SEQ_DTYPE, EngineConfig, NativeEngine, StepBatch, build_info

PAGE_TOKENS = 64


@dataclass(frozen=True)
class Case:
    """`rows` of each sequence, all at `position`."""

    what: str
    rows: tuple[int, ...]
    position: int


CASES = (
    Case("decode", (1,), 200),
    Case("decode", (1,) * 4, 200),
    Case("decode", (3,) * 4, 200),
    Case("decode", (3,) * 8, 200),
    Case("decode", (1,), 23_000),
    Case("decode", (3,) * 4, 23_000),
    Case("decode", (1,), 100_000),
    Case("prefill", (512,), 0),
)


def make_batch(case: Case, flag: int, n_vocab: int) -> StepBatch:
    """Decode rows all want `flag`, a prompt chunk only its last row."""
    pages = -(-(case.position + max(case.rows)) // PAGE_TOKENS)
    seqs = np.zeros(len(case.rows), SEQ_DTYPE)
    total = sum(case.rows)
    flags = np.zeros(total, np.uint32)
    begin = 0
    for i, n in enumerate(case.rows):
        seqs[i] = (i, begin, n, 0, 0, i * pages, pages, 0)
        begin += n
        flags[begin - (1 if case.what == "prefill" else n) : begin] = flag
    return StepBatch(
        (np.arange(total, dtype=np.int32) * 7919 + 100) % (n_vocab - 1),
        np.concatenate([np.arange(n, dtype=np.int32) + case.position for n in case.rows]),
        np.repeat(np.arange(len(case.rows), dtype=np.int32), case.rows),
        flags,
        seqs,
        np.arange(len(case.rows) * pages, dtype=np.int32),
    )


def is_batch_invariant(engine: NativeEngine) -> bool:
    """Rows of four sequences in one step have the bits that each sequence gets alone."""
    together = make_batch(Case("decode", (3,) * 4, 0), ROW_LOGITS, engine.n_vocab)
    for slot in range(4):
        engine.state_reset(slot)
    expected = engine.step(together).logits.copy()
    for slot in range(4):
        engine.state_reset(slot)
        rows = slice(3 * slot, 3 * slot + 3)
        alone = StepBatch(
            together.tokens[rows].copy(),
            together.positions[rows].copy(),
            np.zeros(3, np.int32),
            together.row_flags[rows].copy(),
            together.seqs[slot : slot + 1].copy(),
            together.page_table.copy(),
        )
        alone.seqs["row_begin"] = 0
        if not np.array_equal(engine.step(alone).logits.view(np.uint32), expected[rows].view(np.uint32)):
            return False
    return True


def measure(engine: NativeEngine, case: Case, repeat: int) -> float:
    """Median milliseconds of a step, host work of the library included."""
    batch = make_batch(case, ROW_ARGMAX, engine.n_vocab)
    engine.step(batch)
    return float(np.median([engine.step(batch).step_us for _ in range(repeat)])) / 1e3


def ops_of(engine: NativeEngine, case: Case) -> dict[str, float]:
    """Milliseconds of one step by kind of op; needs an engine with profile=True."""
    before = {op.name: op.total_us for op in engine.op_times()}
    engine.step(make_batch(case, ROW_ARGMAX, engine.n_vocab))
    spent = {op.name: (op.total_us - before[op.name]) / 1e3 for op in engine.op_times()}
    return {name: round(ms, 3) for name, ms in spent.items() if ms > 0}


def commit() -> str:
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def table(record: dict[str, Any]) -> str:
    lines = [f"{'step':8} {'rows':>5} {'sequences':>9} {'position':>9} {'ms':>9} {'rows/s':>9}"]
    for r in record["results"]:
        lines.append(
            f"{r['what']:8} {r['rows']:5} {r['sequences']:9} {r['position']:9,} {r['ms']:9.3f} {r['rows_s']:9,.0f}"
        )
    verdict = "equal bits" if record["batch_invariant"] else "DIFFERENT BITS"
    return "\n".join([*lines, f"{record['device']}; rows alone and together: {verdict}"])


@click.command()
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
@click.option("--pool", default=132 * 1024, show_default=True, help="Tokens of the KV pool.")
@click.option("--slots", default=8, show_default=True)
@click.option("--repeat", default=9, show_default=True, help="Timed steps; the median counts.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write JSON to this file.")
def step(model: Path, device: str, kv: str, pool: int, slots: int, repeat: int, out: Path | None) -> None:
    """Measure steps of MODEL."""
    loaded = load_model(model)
    sizes: dict[str, Any] = {
        "n_pages": -(-pool // PAGE_TOKENS),
        "n_state_slots": slots,
        "page_tokens": PAGE_TOKENS,
        "device": device,
        "kv_type_k": kv,
        "kv_type_v": kv,
    }
    begin = time.perf_counter()
    with NativeEngine(loaded, EngineConfig(**sizes)) as engine:
        load_s = time.perf_counter() - begin
        info = engine.info()
        record: dict[str, Any] = {
            "what": "milliseconds of one step, median",
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit(),
            "command": f"python -m bench.step {model.name} --device {device} --kv {kv} --pool {pool} --slots {slots}",
            "pyjet": build_info(),
            "device": info.device_name,
            "model": f"{loaded.n_params / 1e9:.1f}B, {loaded.ftype_name}",
            "kv": kv,
            "pool_tokens": pool,
            "slots": slots,
            "load_s": round(load_s, 1),
            "memory_gb": round((info.weight_bytes + info.kv_bytes + info.state_bytes + info.workspace_bytes) / 1e9, 2),
            "batch_invariant": is_batch_invariant(engine),
            "results": [],
        }
        for case in CASES:
            ms = measure(engine, case, repeat)
            rows = sum(case.rows)
            record["results"].append(
                {
                    "what": case.what,
                    "rows": rows,
                    "sequences": len(case.rows),
                    "position": case.position,
                    "ms": round(ms, 3),
                    "rows_s": round(rows / ms * 1e3, 1),
                }
            )
    with NativeEngine(loaded, EngineConfig(**sizes, profile=True)) as engine:
        for case, result in zip(CASES, record["results"], strict=True):
            result["ops_ms"] = ops_of(engine, case)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(record, indent=1) + "\n")
    click.echo(table(record))
    raise SystemExit(0 if record["batch_invariant"] else 1)


if __name__ == "__main__":
    step()
