"""The bounds that figures must keep: ``python -m bench.bounds bench/results/nvidia-h200/{step,agents}.json``.

Prints every bound with its figure and fails when one is missed. A figure that was not measured is neither.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True)
class Bound:
    key: str
    text: str
    limit: float
    is_least: bool = False  # the figure must be at least the limit, otherwise at most

    def is_kept(self, value: float) -> bool:
        return value >= self.limit if self.is_least else value <= self.limit

    @property
    def wanted(self) -> str:
        return f"{'>=' if self.is_least else '<='} {self.limit:g}"


BOUNDS = (
    Bound("is_correct", "bits alone and beside others equal, KL to the CPU small", 1, is_least=True),
    Bound("decode_bw_fraction_1row", "decode, 1 row: share of the read bandwidth", 0.70, is_least=True),
    Bound("step_ratio_12_over_1", "step of 12 rows (4 x 3) over 1 row", 1.35),
    Bound("step_ratio_24_over_1", "step of 24 rows (8 x 3) over 1 row", 1.70),
    Bound("attention_23k_over_short_12rows", "step of 12 rows at 23,000 over the one at 200", 1.25),
    Bound("prefill_ratio_vs_llamacpp", "prompt of 20,000: tokens a second over llama.cpp's best", 1.20, is_least=True),
    Bound("chunk_beside_9_rows_ratio", "chunk of 512 beside 9 decode rows over the chunk alone", 1.15),
    Bound("vram_gb_27b_132k_4slots", "GPU memory, 132K pool and 4 slots, GB", 23.5),
    Bound("host_gap_fraction_4seq", "share of the time between steps, 4 sequences", 0.05),
    Bound("http_over_engine_4clients", "4 streaming clients: tokens a second over the engine's", 0.93, is_least=True),
    Bound("followup_ttft_s_4x23k", "4 agents at 23,000 ask at once: time to first token, s", 0.3),
    Bound("decode_share_during_prefill", "decode beside another's prompt of 20,000 over alone", 0.30, is_least=True),
    Bound("longest_pause_s", "longest pause of that decode, s", 0.15),
    Bound("prompt_slowdown", "time to first token of that prompt over alone", 1.3),
    Bound("tok_s_ratio_1", "1 agent, 2 drafts: tokens a second over llama.cpp's", 3.0, is_least=True),
    Bound("tok_s_ratio_4", "4 agents, 2 drafts: tokens a second over llama.cpp's", 5.0, is_least=True),
    Bound("tok_s_ratio_8", "8 agents, 2 drafts: tokens a second over llama.cpp's", 6.0, is_least=True),
    Bound("tok_s_ratio_4x23k", "4 agents at 23,000, 2 drafts: the same", 5.0, is_least=True),
    Bound("draft_overhead_fraction", "what making 2 drafts adds to a step's time", 0.06),
    Bound("adaptive_worst_share", "adaptive drafts: speed over the best fixed number's", 0.98, is_least=True),
    Bound("first_draft_over_llama_cpp", "first MTP draft right: share over llama.cpp's", 0.97, is_least=True),
)


def lines(record: dict[str, Any]) -> list[tuple[Bound, str, str]]:
    """(bound, figure, "ok", "MISSED" or "not measured")"""
    found = []
    for bound in BOUNDS:
        value = record.get(bound.key)
        if value is None:
            found.append((bound, "", "not measured"))
        else:
            shown = ("no", "yes")[value] if isinstance(value, bool) else f"{value:.3g}"
            found.append((bound, shown, "ok" if bound.is_kept(float(value)) else "MISSED"))
    return found


@click.command(help=__doc__)
@click.argument("files", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
def main(files: tuple[Path, ...]) -> None:
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    found = lines({key: value for record in records for key, value in record.items()})
    for bound, value, verdict in found:
        click.echo(f"{bound.text:60} {value:>8} {bound.wanted:>8}  {verdict}")
    for file, record in zip(files, records):
        made = f"{record.get('device')}; {record.get('model')}; commit {record.get('commit')}; {record.get('date')}"
        click.echo(f"{file.name}: {made}")
    sys.exit(int(any(verdict == "MISSED" for _, _, verdict in found)))


if __name__ == "__main__":
    main()
