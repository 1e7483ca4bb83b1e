"""The README's tables about drafts."""

from __future__ import annotations

from typing import Any

from bench import bounds
from bench.report_text import markdown, run_note

SERVED_CASES = (  # suffix of the keys, what it stands for
    ("1", "1 agent"),
    ("4", "4 agents"),
    ("8", "8 agents"),
    ("4x23k", "4 agents at 23,000 tokens"),
)


def speculation_table(record: dict[str, Any]) -> str:
    """Tokens a second of all agents with two drafts beside llama-server; empty where nothing was measured."""
    found = {bound.key: (bound, verdict) for bound, _, verdict in bounds.lines(record)}
    rows = []
    for case, text in SERVED_CASES:
        bound, verdict = found[f"tok_s_ratio_{case}"]
        ratio = record.get(f"tok_s_ratio_{case}")
        peer = record[f"tok_s_{case}"] / ratio if ratio else None
        shown = [_number(value, form) for value, form in (
            (record.get(f"tokens_per_step_{case}"), "{:.2f}"), (record.get(f"tok_s_{case}"), "{:,.0f}"),
            (peer, "{:,.0f}"), (ratio, "{:.1f}"),
        )]  # fmt: skip
        rows.append([text, *shown, bound.wanted, verdict])
    origin = "are of the same run" if record.get("llama_cpp_measured_here") else "were recorded earlier on an H200"
    more = [f"{bound.text}: {value} ({bound.wanted}, {verdict})" for bound, value, verdict in bounds.lines(record)
            if value and not bound.key.startswith("tok_s_ratio")]  # fmt: skip
    if left_out := record.get("adaptive_left_out"):
        more.append(f"of these not measured: {', '.join(left_out)}")
    details = " ".join(f"{text[0].upper()}{text[1:]}." for text in more)
    note = f"Both with `{record['options']}`: acceptance by lot; llama.cpp's figures {origin}. {details} "
    note += f"{record['model']}, random weights; {run_note(record)}"
    return markdown(["tokens/s, all agents", "tokens a step", "pyjet", "llama.cpp", "ratio", "bound", ""], rows, note)


ACCEPTANCE_KINDS = ("code", "chat", "edit", "all")


def acceptance_table(record: dict[str, Any]) -> str:
    """Tokens a step by source of the drafts and kind of prompt; in brackets how often the first draft is right."""
    sources = {f"pyjet, {name}": kinds for name, kinds in record["sources"].items()}
    if peer := record.get("llama_cpp"):
        sources["llama.cpp, mtp"] = peer["mtp"]

    def cell(figures: dict[str, Any] | None) -> str:
        if not figures:
            return ""
        first = figures.get("accepted_at")
        return f"{figures['tokens_per_step']:.2f}" + (f" ({first[0]:.0%})" if first else "")

    rows = [[name, *(cell(kinds.get(kind)) for kind in ACCEPTANCE_KINDS)] for name, kinds in sources.items()]
    note = f"{record['model']}, {record['prompts']}, temperature 0; {record['device']}; {record['date']}."
    return markdown(["tokens a step (first draft right)", *ACCEPTANCE_KINDS], rows, note)


def temperature_table(record: dict[str, Any]) -> str:
    """How often the first draft of the MTP block is right by temperature, for greedy and probabilistic drafts."""
    drawn = {f"pyjet, {sampling}": by for sampling, by in record["temperatures"].items()}
    peer = record.get("llama_cpp", {}).get("temperatures", {})
    drawn |= {f"llama.cpp, {sampling}": by for sampling, by in peer.items()}
    columns = list(record["temperatures"]["greedy"])
    rows = [[name, *(f"{(by[t].get('accepted_at') or [0.0])[0]:.1%}" for t in columns)] for name, by in drawn.items()]
    note = f"{record['model']}, code and chats, the samplers' defaults besides; {record['device']}; {record['date']}."
    return markdown(["first draft right", *(f"T {t}" for t in columns)], rows, note)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
