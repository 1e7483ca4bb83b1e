"""The table of a load run."""

from __future__ import annotations

import statistics
from argparse import Namespace
from typing import Any

COLUMNS = [
    ("single", "decode_tok_s", "one agent, short prompt: decode tok/s"),
    ("single", "ttft_s", "one agent, short prompt: time to first token, s"),
    ("agents", "decode_tok_s", "{n} agents, short prompts: decode tok/s each"),
    ("agents", "total_tok_s", "{n} agents, short prompts: decode tok/s in total"),
    ("agents", "ttft_s", "{n} agents, short prompts: time to first token, s"),
    ("prefill", "prompt_tok_s", "one fresh {p}-token prompt: prompt tok/s"),
    ("prefill", "ttft_s", "one fresh {p}-token prompt: time to first token, s"),
    ("build", "prompt_tok_s", "{n} fresh {c}-token prompts at once: prompt tok/s"),
    ("followup", "ttft_s", "{n} agents at {c}: next request, time to first token, s"),
    ("followup", "processed", "{n} agents at {c}: next request, prompt tokens processed"),
    ("followup", "decode_tok_s", "{n} agents at {c}: decode tok/s each"),
    ("followup", "total_tok_s", "{n} agents at {c}: decode tok/s in total"),
    ("solo", "ttft_s", "one agent at {c}: next request, time to first token, s"),
    ("solo", "processed", "one agent at {c}: next request, prompt tokens processed"),
    ("solo", "decode_tok_s", "one agent at {c}: decode tok/s"),
    ("mixed", "before_tok_s", "one agent at {c} alone, before the other's prompt: tok/s"),
    ("mixed", "during_tok_s", "the same while another's {p}-token prompt is processed: tok/s"),
    ("mixed", "longest_pause_s", "its longest pause in that time, s"),
    ("mixed", "other_prompt_tok_s", "the other's prompt: prompt tok/s"),
]


def table(results: list[dict[str, Any]], args: Namespace) -> str:
    """Markdown: median, extremes and number of values of each measurement."""
    rows = [("measurement", "median", "min", "max", "n")]
    for scenario, key, label in COLUMNS:
        values: list[float] = []
        for r in results:
            if r["scenario"] == scenario and r.get(key) is not None:
                values += r[key] if isinstance(r[key], list) else [r[key]]
        values = [v for v in values if v is not None]
        if values:
            digits = 0 if key == "processed" else 1 if "tok" in key else 3
            rows.append((label.format(n=args.agents, c=args.context, p=args.prefill),
                         *(f"{x:.{digits}f}" for x in (statistics.median(values), min(values), max(values))),
                         str(len(values))))
    width = [max(len(r[i]) for r in rows) for i in range(5)]
    lines = ["| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, width))) + " |"
             for r in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
    return "\n".join(lines)
