"""``generation_settings``: the parameters of a request as answers, ``/props`` and ``/slots`` show them."""

from __future__ import annotations

import math
from typing import Any

from pyjet.server.completion_params import CompletionParams

_ORDER = (
    "seed", "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma",
    "xtc_probability", "xtc_threshold", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
    "dry_sequence_breakers", "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "stop",
    "max_tokens", "n_predict", "n_keep", "n_discard", "ignore_eos", "stream", "logit_bias", "n_probs", "min_keep",
    "grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens", "chat_format", "reasoning_format",
    "reasoning_in_content", "generation_prompt", "samplers", "speculative.types", "timings_per_token",
    "post_sampling_probs", "backend_sampling", "lora",
)  # fmt: skip
_NOT_IN_METRICS = frozenset(
    ("dry_sequence_breakers", "stop", "logit_bias", "grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens")
)


def generation_settings(params: CompletionParams, *, metrics_only: bool = False) -> dict[str, Any]:
    """Settings in llama-server's order; ``metrics_only`` leaves out the long ones."""
    computed = {
        "max_tokens": params.n_predict,
        "logit_bias": [{"bias": _json_float(bias), "token": token} for token, bias in params.logit_bias],
        "speculative.types": ",".join(params.speculative_types),
        "lora": [],
    }
    return {
        name: computed[name] if name in computed else getattr(params, name)
        for name in _ORDER
        if not (metrics_only and name in _NOT_IN_METRICS)
    }


def _json_float(value: float) -> float | None:
    """JSON has no infinities: llama-server's bans appear as null."""
    return value if math.isfinite(value) else None
