"""The ``timings`` object of answers."""

from __future__ import annotations

from typing import Any

from pyjet.engine.request import Timings


def timings_json(timings: Timings) -> dict[str, Any]:
    """llama-server's keys and formulas: milliseconds and tokens per second.

    The first generated token belongs to the prompt phase, so generation rates cover ``predicted_n - 1`` tokens.
    Rates without a duration are 0. ``draft_n`` and ``draft_n_accepted`` are there once a draft was verified. Once there
    is a token two keys of our own follow: ``queue_ms``, the wait for a slot, and ``ttft_ms``, the time from the request
    to that token.
    """
    steps = max(0, timings.predicted_n - 1)
    numbers = {
        "cache_n": timings.cache_n,
        "prompt_n": timings.prompt_n,
        "prompt_ms": float(timings.prompt_ms),
        "prompt_per_token_ms": timings.prompt_ms / timings.prompt_n if timings.prompt_n else 0.0,
        "prompt_per_second": _per_second(timings.prompt_n, timings.prompt_ms),
        "predicted_n": timings.predicted_n,
        "predicted_ms": float(timings.predicted_ms),
        "predicted_per_token_ms": timings.predicted_ms / steps if steps else 0.0,
        "predicted_per_second": _per_second(steps, timings.predicted_ms),
    }
    if timings.draft_n > 0:
        numbers["draft_n"] = timings.draft_n
        numbers["draft_n_accepted"] = timings.draft_n_accepted
    if timings.predicted_n > 0:
        numbers["queue_ms"] = float(timings.queue_ms)
        numbers["ttft_ms"] = float(timings.queue_ms + timings.prompt_ms)
    return numbers


def _per_second(count: int, milliseconds: float) -> float:
    return 1e3 * count / milliseconds if milliseconds > 0 else 0.0


def usage_json(n_prompt: int, n_predicted: int, n_cached: int) -> dict[str, Any]:
    """OpenAI's ``usage``: tokens; cached ones are part of ``prompt_tokens``."""
    return {
        "completion_tokens": n_predicted,
        "prompt_tokens": n_prompt,
        "total_tokens": n_prompt + n_predicted,
        "prompt_tokens_details": {"cached_tokens": n_cached},
    }
