"""The printed table and the record in bench/results."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from compat_tests.greedy.difference import Difference, Verdict
from compat_tests.greedy.prompts import PROMPT_TOKENS
from compat_tests.kl.report import circumstances

_COLUMNS = ("prompts", "same", "llama.cpp", "bound", "gap", "beyond")


def own_share(verdict: Verdict) -> float:
    """The smallest share of its own answers that llama.cpp writes again in one of its other modes."""
    return min(verdict.same_share(mode) for mode in verdict.comparisons[0].same_modes)


def largest_gap(verdict: Verdict) -> float:
    """Of pyjet's two choices where an answer differs, in logits; 0 when none does."""
    return max((d.gap for d in verdict.differences), default=0.0)


def table(verdicts: dict[str, Verdict]) -> str:
    """Per file: prompts, shares of identical answers of pyjet and of llama.cpp itself, the bound and what is beyond."""
    head = f"{'file':40}" + "".join(f" {name:>10}" for name in _COLUMNS)
    lines = [head, "-" * len(head)]
    for name, v in verdicts.items():
        shares = f" {v.same_share():10.1%} {own_share(v):10.1%}"
        gaps = f" {v.bound:10.3g} {largest_gap(v):10.3g} {len(v.beyond):10}"
        lines.append(f"{name:40} {len(v.comparisons):10}{shares}{gaps}")
    return "\n".join(lines)


def sentence(name: str, difference: Difference, bound: float) -> str:
    """Where an answer differs."""
    d = difference
    return (
        f"{name}, {d.prompt}: the answers differ after {d.position} tokens, where pyjet's logit of token {d.ours} is "
        f"{d.gap:.3g} above that of llama.cpp's {d.theirs} (bound {bound:.3g})"
    )


def record(verdicts: dict[str, Verdict], n_tokens: int, isa: str, seconds: float) -> dict[str, Any]:
    """Everything that is worth keeping of a run. isa: the instruction set of pyjet's CPU backend."""
    return {
        "what": "greedy answers beside llama.cpp's",
        **circumstances("compat_tests.greedy", isa),
        "prompt_tokens": PROMPT_TOKENS,
        "answer_tokens": n_tokens,
        "seconds": round(seconds),
        "results": [_entry(name, verdict) for name, verdict in verdicts.items()],
    }


def _entry(name: str, v: Verdict) -> dict[str, Any]:
    return {
        "file": name,
        "prompts": len(v.comparisons),
        "answer_tokens": sum(c.n_tokens for c in v.comparisons),
        "same": round(v.same_share(), 4),
        "llama_cpp_same": {mode: round(v.same_share(mode), 4) for mode in v.comparisons[0].same_modes},
        "bound": _rounded(v.bound),
        "beyond": len(v.beyond),
        "differences": [asdict(d) | {"gap": _rounded(d.gap), "peer_gap": _rounded(d.peer_gap)} for d in v.differences],
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
