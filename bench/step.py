"""Time of one engine step by rows and context: ``python -m bench.step MODEL.gguf --device cuda``.

Rows of several sequences at a position, and prompt chunks. Pages and states hold what a real prompt left there; make a
file of random weights with `bench.make_synthetic_gguf`. Nothing is timed at a position before the same rows alone and
in company have been compared bit by bit there; the verdict is part of the figures (`is_correct`).

Figures go into a flat JSON file: `ms_ROWS_rows_at_POSITION`, the same of four sampled rows, the ratios that
`bench.bounds` checks, and, as the one nested entry, `ops`: the time of each kind of op, which `bench.op_table` shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench import gpu, record
from bench.step_rows import PAGE_TOKENS, Rows, decode_rows, fill, median_ms, pages_for, prefill_tok_s, reset_states
from bench.step_verdict import KL_LIMIT, is_batch_invariant, kl_between
from bench.step_work import by_op, decode_weight_bytes
from pyjet.assets import default_model_path
from pyjet.engine.settings import EngineSettings
from pyjet.model.reader import Model, load_model
from pyjet.native import ROW_SAMPLE, EngineConfig, NativeEngine, NativeError, build_info

N_DECODE = 8
PROMPT_SLOT, BASE_SLOT = N_DECODE, N_DECODE + 1  # a prompt beside the others; the state that all start from
ROWS = {1: (1, 1), 4: (4, 1), 12: (4, 3), 24: (8, 3)}  # rows of a step: sequences, rows of each
SHORT, LONG = 200, 23_000
LLAMA_CPP_PREFILL = 2_500.0  # tokens a second, its best on the H200 with the same file (-ub 2048)
VRAM_TOKENS, VRAM_SLOTS = 132 * 1024, 4
OP_STEPS = 4  # of which each op's mean time is taken


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    model: Model
    device: str
    kv: str
    chunk: int
    prompt_chunk: int
    repeat: int

    def config(self, n_tokens: int, n_slots: int, max_rows: int, **more: Any) -> EngineConfig:
        sizes: dict[str, Any] = {"device": self.device, "kv_type_k": self.kv, "kv_type_v": self.kv, **more}
        return EngineConfig(pages_for(n_tokens), n_slots, max_rows=max_rows, page_tokens=PAGE_TOKENS, **sizes)

    def open(self, positions: tuple[int, ...], prompt: int, **more: Any) -> NativeEngine:
        """An engine whose pool holds all sequences at the largest position and a chunk, filled."""
        n_pages = N_DECODE * pages_for(max(positions) + 3) + pages_for(self.chunk)
        n_tokens = PAGE_TOKENS * max(n_pages, pages_for(prompt))
        max_rows = max(self.chunk + 3 * N_DECODE, self.prompt_chunk)
        engine = NativeEngine(self.model, self.config(n_tokens, BASE_SLOT + 1, max_rows, **more))
        fill(engine, self.chunk, BASE_SLOT)
        reset_states(engine, range(BASE_SLOT), BASE_SLOT)
        return engine

    def prompt_beside(self, parts: list[Rows]) -> Rows:
        """A prompt's chunk, of which nothing is wanted yet, on pages behind those of the others."""
        first_page = max((part.first_page + part.n_pages for part in parts), default=0)
        return Rows(PROMPT_SLOT, self.chunk, 0, first_page, 0)


def gpu_memory(bench: Bench) -> dict[str, Any]:
    """GPU memory that the driver counts for this process with the served sizes, after steps of both kinds."""
    before = gpu.used_bytes()
    served = EngineSettings(
        bench.model.path,
        n_slots=VRAM_SLOTS,
        n_ctx_slot=VRAM_TOKENS // VRAM_SLOTS,
        n_ctx_total=VRAM_TOKENS,
        device=bench.device,  # type: ignore[arg-type]
        kv_type_k=bench.kv,  # type: ignore[arg-type]
        kv_type_v=bench.kv,  # type: ignore[arg-type]
    )
    config = served.engine_config()
    with NativeEngine(bench.model, config) as engine:
        for parts in ([Rows(0, 512, 0, 0)], decode_rows(VRAM_SLOTS, 3, SHORT)):
            median_ms(engine, parts, 1)
        after, info = gpu.used_bytes(), engine.info()
    own = info.weight_bytes + info.kv_bytes + info.state_bytes + info.workspace_bytes
    figures = {"engine_gb_132k_4slots": round(own / 1e9, 3)}
    if before is not None and after is not None and bench.device == "cuda":
        figures["vram_gb_27b_132k_4slots"] = round((after - before) / 1e9, 3)
    return figures


def verdict(bench: Bench, engine: NativeEngine, positions: tuple[int, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"batch_invariant_at_{position}": is_batch_invariant(engine, position, bench.chunk, BASE_SLOT)
        for position in positions
    }
    ok = all(found.values())
    if bench.device != "cpu":
        sizes: dict[str, Any] = {"n_pages": 8, "n_state_slots": 1}
        small = load_model(default_model_path())
        kl = kl_between(small, EngineConfig(device="cuda", **sizes), EngineConfig(**sizes))
        found["kl_to_cpu_pyjet_tiny"] = float(f"{kl:.3g}")
        ok = ok and kl < KL_LIMIT
    return {**found, "is_correct": ok}


def step_times(bench: Bench, engine: NativeEngine, positions: tuple[int, ...]) -> dict[str, Any]:
    sampled = median_ms(engine, decode_rows(4, 1, positions[0], ROW_SAMPLE), bench.repeat)
    figures: dict[str, Any] = {f"ms_4_rows_sampled_at_{positions[0]}": round(sampled, 4)}
    for position in positions:
        for rows, (n_seqs, each) in ROWS.items():
            ms = median_ms(engine, decode_rows(n_seqs, each, position), bench.repeat)
            figures[f"ms_{rows}_rows_at_{position}"] = round(ms, 4)
    return figures


def chunk_times(bench: Bench, engine: NativeEngine, positions: tuple[int, ...]) -> dict[str, Any]:
    """A chunk at position 0 alone and beside nine decode rows."""
    nine = decode_rows(3, 3, positions[0])
    chunk = bench.prompt_beside(nine)
    alone, beside = (median_ms(engine, parts, 3) for parts in ([chunk], [*nine, chunk]))
    return {
        "chunk_rows": bench.chunk,
        "ms_chunk": round(alone, 3),
        "ms_chunk_beside_9_rows": round(beside, 3),
        "chunk_beside_9_rows_ratio": round(beside / alone, 4),
    }


def prefill(bench: Bench, engine: NativeEngine, n_tokens: int) -> dict[str, Any]:
    rate = prefill_tok_s(engine, n_tokens, bench.prompt_chunk, PROMPT_SLOT)
    figures: dict[str, Any] = {
        "prefill_tokens": n_tokens,
        "prefill_chunk_rows": bench.prompt_chunk,
        "prefill_tok_s": round(rate, 1),
    }
    if bench.device == "cuda":
        figures["prefill_ratio_vs_llamacpp"] = round(rate / LLAMA_CPP_PREFILL, 4)
    return figures


def ratios(model: Model, figures: dict[str, Any]) -> dict[str, Any]:
    """What follows from the milliseconds; a figure whose parts are missing is left out."""
    found: dict[str, Any] = {}

    def divide(key: str, above: float | None, below: float | None) -> None:
        if above is not None and below is not None:
            found[key] = round(above / below, 4)

    one, twelve = figures.get(f"ms_1_rows_at_{SHORT}"), figures.get(f"ms_12_rows_at_{SHORT}")
    divide("step_ratio_12_over_1", twelve, one)
    divide("step_ratio_24_over_1", figures.get(f"ms_24_rows_at_{SHORT}"), one)
    divide("attention_23k_over_short_12rows", figures.get(f"ms_12_rows_at_{LONG}"), twelve)
    if one is not None and (read := figures.get("read_gb_s")) is not None:
        found["decode_weight_gb"] = round(decode_weight_bytes(model) / 1e9, 3)
        divide("decode_bw_fraction_1row", decode_weight_bytes(model) / 1e6 / one, read)
    return found


def op_times(bench: Bench, positions: tuple[int, ...]) -> dict[str, Any]:
    """What each kind of step spends on each kind of op, beside the op's least work (bench.step_work)."""
    cases = {
        f"{rows}_rows_at_{position}": decode_rows(n_seqs, each, position)
        for position in positions
        for rows, (n_seqs, each) in ROWS.items()
    }
    cases[f"4_rows_sampled_at_{positions[0]}"] = decode_rows(4, 1, positions[0], ROW_SAMPLE)
    cases["chunk"] = [bench.prompt_beside([])]
    with bench.open(positions, 0, profile=True) as engine:
        return {name: ops_of(bench, engine, parts) for name, parts in cases.items()}


def ops_of(bench: Bench, engine: NativeEngine, parts: list[Rows]) -> dict[str, dict[str, float]]:
    """op -> ms and, where known, gb to move and gmac, 10^9 multiply-adds"""
    median_ms(engine, parts, 1)
    before = {op.name: op.total_us for op in engine.op_times()}
    median_ms(engine, parts, OP_STEPS - 1)
    spent = {op.name: (op.total_us - before[op.name]) / 1e3 / OP_STEPS for op in engine.op_times()}
    found = {name: {"ms": round(ms, 4)} for name, ms in spent.items() if ms > 0}
    for name, work in by_op(bench.model, parts, bench.kv).items():
        if name in found:
            found[name] |= {"gb": round(work.n_bytes / 1e9, 4), "gmac": round(work.macs / 1e9, 3)}
    return found


def positions_that_fit(bench: Bench, positions: tuple[int, ...], prompt: int) -> tuple[tuple[int, ...], NativeEngine]:
    """The engine for all positions, or, where memory is short, for all but the largest ones."""
    while True:
        try:
            return positions, bench.open(positions, prompt)
        except NativeError as error:
            if error.kind != "memory" or len(positions) == 1:
                raise
            click.echo(f"nothing is measured at position {positions[-1]:,}: {error}", err=True)
            positions = positions[:-1]


def numbers(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted(int(part) for part in text.split(",")))
    except ValueError:
        raise click.BadParameter(f"{text!r}: positions look like 200,23000") from None


def show(figures: dict[str, Any], positions: tuple[int, ...]) -> str:
    lines = [f"{'ms a step':>10}" + "".join(f"{f'at {position:,}':>12}" for position in positions)]
    for rows in ROWS:
        cells = (figures[f"ms_{rows}_rows_at_{position}"] for position in positions)
        lines.append(f"{f'{rows} rows':>10}" + "".join(f"{ms:12.3f}" for ms in cells))
    lines.append(f"{figures['chunk_rows']} rows of a prompt: {figures['ms_chunk']:.1f} ms, beside 9 decode rows "
                 f"{figures['ms_chunk_beside_9_rows']:.1f}; prompt of {figures['prefill_tokens']:,}: "
                 f"{figures['prefill_tok_s']:,.0f} tokens/s")  # fmt: skip
    return "\n".join(lines)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
@click.option("--positions", default="200,23000,100000", show_default=True, callback=numbers)
@click.option("--prompt", default=20_000, show_default=True, help="Tokens of the prefill measurement.")
@click.option("--chunk", default=512, show_default=True, help="Prompt rows of a step.")
@click.option("--prompt-chunk", default=1024, show_default=True, help="Rows of a step of the prefill measurement.")
@click.option("--repeat", default=9, show_default=True, help="Timed steps; the median counts.")
@click.option("--ops/--no-ops", default=True, show_default=True, help="Also the time of each kind of op.")
@click.option("--memory/--no-memory", default=True, show_default=True, help="Also the memory of the served sizes.")
@click.option("--ceilings", type=click.Path(exists=True, path_type=Path), help="bench/native/ceilings.cu, compiled.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to add the figures to.")
def main(model: Path, device: str, kv: str, positions: tuple[int, ...], prompt: int, chunk: int, prompt_chunk: int,
         repeat: int, ops: bool, memory: bool, ceilings: Path | None, out: Path | None) -> None:  # fmt: skip
    begin = time.perf_counter()

    def say(what: str) -> None:
        click.echo(f"{time.perf_counter() - begin:6.1f} s  {what}", err=True)

    loaded = load_model(model)
    bench = Bench(loaded, device, kv, chunk, prompt_chunk, repeat)
    figures: dict[str, Any] = {
        "command": f"python -m bench.step {model.name} --device {device} --kv {kv} --prompt {prompt} --chunk {chunk} "
        f"--prompt-chunk {prompt_chunk}",
        "kv": kv,
    }
    # The driver counts the memory of every process, so this comes before any other use of the GPU.
    figures |= gpu_memory(bench) if memory else {}
    say("memory")
    figures |= gpu.ceilings(ceilings)
    positions, engine = positions_that_fit(bench, positions, prompt)
    with engine:
        device_name = engine.info().device_name
        say("engine loaded and filled")
        parts: list[tuple[str, Callable[[], dict[str, Any]]]] = [
            ("verdict", lambda: verdict(bench, engine, positions)),
            ("steps", lambda: step_times(bench, engine, positions)),
            ("chunks", lambda: chunk_times(bench, engine, positions)),
            ("prefill", lambda: prefill(bench, engine, prompt)),
        ]
        for name, part in parts:
            figures |= part()
            say(name)
    figures |= ratios(loaded, figures)
    if ops:
        figures["ops"] = op_times(bench, positions)
        say("ops")
    if out:
        record.update(out, record.identity(loaded, device_name), figures)
    click.echo(show(figures, positions))
    click.echo(f"{device_name}; {build_info()}; correct: {'yes' if figures['is_correct'] else 'NO'}")
    raise SystemExit(0 if figures["is_correct"] else 1)


if __name__ == "__main__":
    main()
