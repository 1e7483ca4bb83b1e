"""The figures of bench.agents_beside, from the records of bench.load_scenarios."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Records = Sequence[dict[str, Any]]


def figures(results: Records) -> dict[str, float]:
    """What the scenarios that ran give; the others' keys are absent.

    Times of a repetition are the worst of the agents; over repetitions counts the median, of pauses the longest.
    """
    alone = [max(r["ttft_s"]) for r in results if r["scenario"] == "prefill"]
    followup = [r for r in results if r["scenario"] == "followup"]
    mixed = [r for r in results if r["scenario"] == "mixed"]
    found: dict[str, float] = {}
    if alone:
        found["prompt_ttft_s_alone"] = statistics.median(alone)
    if followup:
        found["followup_ttft_s_4x23k"] = statistics.median(max(r["ttft_s"]) for r in followup)
        found["followup_tokens_processed"] = max(max(r["processed"]) for r in followup)
    if mixed:
        beside = statistics.median(r["other_ttft_s"] for r in mixed)
        found["decode_tok_s_before_prefill"] = statistics.median(r["before_tok_s"] for r in mixed)
        found["decode_share_during_prefill"] = statistics.median(r["during_tok_s"] / r["before_tok_s"] for r in mixed)
        found["longest_pause_s"] = max(r["longest_pause_s"] for r in mixed)
        found["prompt_ttft_s_beside"] = beside
        if alone:
            found["prompt_slowdown"] = beside / found["prompt_ttft_s_alone"]
    return {key: round(value, 4) for key, value in found.items()}


def prompt_rate(results: Records) -> float | None:
    """Prompt tokens a second, of the prompts that had the server for themselves."""
    rates = [r["prompt_tok_s"] for r in results if r["scenario"] == "prefill"]
    return statistics.median(rates) if rates else None
