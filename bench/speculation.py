"""What drafts of the MTP block bring: ``python -m bench.speculation MODEL.gguf --device cuda``.

\b
  tok_s_ratio_1, _4, _8, _4x23k  tokens a second of so many agents over llama-server's with the same options, load and
                                 acceptance by lot (on an H200 its recorded figures without --llama-server)
  draft_overhead_fraction        a step that also makes two drafts for each sequence over the same rows without,
                                 minus 1; the largest of 3, 12 and 24 rows
  adaptive_worst_share           tokens a second with adaptive drafts over the best fixed number of them, the smallest
                                 of all context lengths, numbers of sequences and acceptances (bench.adaptive_share)
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import click

from bench import adaptive_share, bounds, draft_overhead, record, served_drafts
from bench.adaptive_share import Lengths
from bench.gpu import device_label
from bench.prompt_skipper import PromptSkipper
from bench.step import numbers
from bench.step_rows import fill, reset_states
from pyjet.engine.build import build_native
from pyjet.engine.client import EngineLimits
from pyjet.engine.settings import EngineSettings
from pyjet.engine.speculation_settings import SpeculationSettings
from pyjet.model.reader import load_model
from pyjet.native import NativeEngine, NativeError

MARGIN = 4096  # tokens of a slot besides its context
FILL_ROWS = 512
# 16 steps right after a pause differ by up to 4 % from the next 16 of the same kind: the best of six such is luck.
FIXED, ADAPTIVE = Lengths(16, 32), Lengths(80, 64)
QUICK_FIXED, QUICK_ADAPTIVE = Lengths(2, 4), Lengths(4, 8)


def open_engine(path: Path, device: Any, kv: Any, contexts: tuple[int, ...], n_slots: int) -> tuple[
    tuple[int, ...], NativeEngine, EngineLimits
]:
    """An engine with room for all sequences at the largest context, or, where memory is short, at a smaller one."""
    while True:
        slot = contexts[-1] + MARGIN
        settings = EngineSettings(
            str(path), n_slots=n_slots, n_ctx_slot=slot, n_ctx_total=slot * n_slots, device=device, kv_type_k=kv,
            kv_type_v=kv, cache_ram=0, speculation=SpeculationSettings(mtp=True, n_max=7),
        )  # fmt: skip
        try:
            engine, limits = build_native(settings, lambda _stage, _done, _total: None)
        except NativeError as error:
            if error.kind != "memory" or len(contexts) == 1:
                raise
            click.echo(f"nothing is measured at {contexts[-1]:,} tokens: {error}", err=True)
            contexts = contexts[:-1]
            continue
        assert isinstance(engine, NativeEngine)
        return contexts, engine, limits


def in_process(path: Path, device: str, kv: str, contexts: tuple[int, ...], counts: tuple[int, ...], quick: bool,
               seconds: float) -> dict[str, Any]:  # fmt: skip
    """The figures that need no server."""
    n_slots = max(*counts, *draft_overhead.SEQUENCES)
    contexts, engine, limits = open_engine(path, device, kv, contexts, n_slots)
    with engine:
        base = limits.n_state_slots - 1
        fill(engine, min(FILL_ROWS, limits.max_rows), base)
        reset_states(engine, range(base), base)
        speculation = limits.speculation
        found: dict[str, Any] = draft_overhead.measure(engine, contexts[0], speculation.draft_vocab, 3 if quick else 9)
        rows, taken = limits.step_seconds[-1]
        stepper = PromptSkipper(engine, base, taken / rows)
        fixed, adaptive = (QUICK_FIXED, QUICK_ADAPTIVE) if quick else (FIXED, ADAPTIVE)
        ends = time.monotonic() + seconds
        return found | adaptive_share.measure(stepper, limits, contexts, counts, fixed, adaptive, ends)


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--llama-server", "peer", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="llama.cpp's server; without it figures recorded on an H200 count there.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
@click.option("--contexts", default="200,23000,100000", show_default=True, callback=numbers)
@click.option("--sequences", default="1,4,8", show_default=True, callback=numbers)
@click.option("--short", default=200, show_default=True, help="Tokens of a short prompt.")
@click.option("--context", default=23000, show_default=True, help="Tokens of a long conversation.")
@click.option("--followup", default=200, show_default=True, help="New tokens of the next request on it.")
@click.option("--tokens", default=384, show_default=True, help="Tokens of an answer.")
@click.option("--total-context", default=131072, show_default=True, help="Tokens of all slots.")
@click.option("--reps", default=8, show_default=True)
@click.option("--served/--no-served", default=True, show_default=True, help="Also the servers.")
@click.option("--time-limit", default=220.0, show_default=True, help="Seconds for adaptive_worst_share.")
@click.option("--quick", is_flag=True, help="Few steps: to try the benchmark, not to measure.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to add the figures to.")
def main(model: Path, peer: Path | None, device: str, kv: str, contexts: tuple[int, ...], sequences: tuple[int, ...],
         served: bool, time_limit: float, quick: bool, out: Path | None, **sizes: int) -> None:  # fmt: skip
    found: dict[str, Any] = {
        "command": f"python -m bench.speculation {model.name} --device {device} --kv {kv}",
        "options": " ".join(served_drafts.MTP),
    }
    if served:
        common = ["-m", str(model), "-ctk", kv, "-ctv", kv]
        found |= served_drafts.measure(common, device, peer, Namespace(**sizes))
    found |= in_process(model, device, kv, contexts, sequences, quick, time_limit)
    found["verdicts"] = {b.key: verdict for b, _, verdict in bounds.lines(found) if verdict != "not measured"}
    if out:
        record.update(out, record.identity(load_model(model), device_label(device)), found)
    record.show(found)
    sys.exit(int(served and "tok_s_1" not in found))


if __name__ == "__main__":
    main()
