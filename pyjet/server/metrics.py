"""``/metrics``: the engine's counters in the Prometheus text format, with llama-server's names."""

from __future__ import annotations

import threading
from dataclasses import replace

from pyjet.engine.counters import Counters

CONTENT_TYPE = "text/plain; version=0.0.4"

_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


class MetricsText:
    """Renders counters; remembers the last scrape, because two gauges are rates since then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = Counters()

    def render(self, now: Counters) -> str:
        """One page. Each call is a scrape: the rates start again from here."""
        with self._lock:
            last, self._last = self._last, replace(now)
        lines = [line for item in _counters(now) for line in _item("counter", *item)]
        lines += [line for item in _gauges(now, last) for line in _item("gauge", *item)]
        lines += _positions(now.accepted_per_position)
        lines += [line for item in _own(now) for line in _item(*item, prefix="pyjet:")]
        lines += _own_drafts(now)
        return "\n".join(lines) + "\n"


def _counters(now: Counters) -> list[tuple[str, str, float]]:
    return [
        ("prompt_tokens_total", "Prompt tokens processed, without reused ones", now.prompt_tokens),
        ("prompt_tokens_cached_total", "Prompt tokens reused from earlier requests", now.prompt_tokens_cached),
        ("prompt_seconds_total", "Total time spent processing prompts", now.prompt_seconds),
        ("tokens_predicted_total", "Tokens generated", now.predicted_tokens),
        ("tokens_predicted_seconds_total", "Total time spent generating tokens", now.predicted_seconds),
        ("n_decode_total", "Engine steps, without draft passes", now.n_decode),
        ("n_tokens_max", "Longest sequence seen, prompt and answer together", now.n_tokens_max),
        ("spec_decode_num_draft_tokens_total", "Draft tokens proposed", now.draft_tokens),
        ("spec_decode_num_accepted_tokens_total", "Draft tokens accepted", now.draft_tokens_accepted),
        ("spec_decode_num_drafts_total", "Drafts verified", now.drafts),
    ]


def _gauges(now: Counters, last: Counters) -> list[tuple[str, str, float]]:
    prompt_rate = _rate(now.prompt_tokens - last.prompt_tokens, now.prompt_seconds - last.prompt_seconds)
    predicted_rate = _rate(
        now.predicted_tokens_timed - last.predicted_tokens_timed, now.predicted_seconds - last.predicted_seconds
    )
    return [
        ("prompt_tokens_seconds", "Prompt tokens per second since the last scrape", prompt_rate),
        ("predicted_tokens_seconds", "Generated tokens per second since the last scrape", predicted_rate),
        ("requests_processing", "Requests that have a slot", now.requests_processing),
        ("requests_deferred", "Requests that wait for a slot", now.requests_deferred),
        ("n_busy_slots_per_decode", "Busy slots per step, on average", now.n_busy_slots_sum / max(now.n_decode, 1)),
    ]


def _own(now: Counters) -> list[tuple[str, str, str, float]]:
    """What llama-server does not have, under a prefix of its own."""
    return [*_own_requests(now), *_own_steps(now), *_own_memory(now)]


def _own_requests(now: Counters) -> list[tuple[str, str, str, float]]:
    n_prompt = now.prompt_tokens_cached + now.prompt_tokens
    hit_ratio = now.prompt_tokens_cached / max(n_prompt, 1)
    return [
        ("counter", "requests_total", "Requests accepted by the engine", now.requests_total),
        ("counter", "requests_finished_total", "Requests that ended with an answer", now.requests_finished),
        ("counter", "queue_seconds_total", "Time that requests waited for a slot", now.queue_seconds),
        (
            "counter",
            "time_to_first_token_seconds_total",
            "Time from request to first token, waiting included",
            now.first_token_seconds,
        ),
        ("counter", "prefix_cache_hits_total", "Requests that reused a part of their prompt", now.prefix_hits),
        ("gauge", "prefix_cache_hit_ratio", "Share of all prompt tokens that were reused", hit_ratio),
    ]


def _own_steps(now: Counters) -> list[tuple[str, str, str, float]]:
    return [
        ("counter", "step_seconds_total", "Time inside native steps", now.step_seconds),
        ("counter", "host_seconds_total", "Time between native steps: planning and sampling", now.host_seconds),
        ("counter", "engine_restarts_total", "Times that a dead engine was started again", now.engine_restarts),
        ("counter", "preemptions_total", "Times that an answer had to wait for memory half-way", now.preemptions),
        ("counter", "tokens_recomputed_total", "Tokens read again after that", now.tokens_recomputed),
        ("counter", "swaps_out_total", "Times that pages or a state moved to host memory", now.swaps_out),
        ("counter", "swaps_in_total", "Times that they came back from there", now.swaps_in),
        ("counter", "swap_seconds_total", "Time spent moving them, both ways", now.swap_seconds),
    ]


def _own_memory(now: Counters) -> list[tuple[str, str, str, float]]:
    return [
        ("gauge", "pages_used", "KV pages in use", now.pages_used),
        ("gauge", "pages_total", "KV pages", now.pages_total),
        ("gauge", "pages_cached", "KV pages held only for prompts to come", now.pages_cached),
        ("gauge", "checkpoints", "Recurrent states kept for prompts to come", now.checkpoints),
        ("gauge", "host_memory_bytes", "Host memory that holds pages and states", now.host_bytes),
    ]


def _positions(accepted: tuple[int, ...]) -> list[str]:
    if not accepted:
        return []
    name = f"llamacpp:{_PER_POSITION}"
    head = [f"# HELP {name} Draft tokens accepted, by position in the draft", f"# TYPE {name} counter"]
    return head + [f'{name}{{position="{index}"}} {count}' for index, count in enumerate(accepted)]


def _own_drafts(now: Counters) -> list[str]:
    """Drafts by where they came from; nothing before the first one."""
    if not now.draft_tokens:
        return []
    drafted = {
        "mtp": now.draft_tokens_mtp,
        "lookup": now.draft_tokens_lookup,
        "grammar": now.draft_tokens_grammar,
    }
    accepted = {
        "mtp": now.draft_tokens_mtp_accepted,
        "lookup": now.draft_tokens_lookup_accepted,
        "grammar": now.draft_tokens_grammar_accepted,
    }
    return [
        *_by_source("draft_tokens_total", "Draft tokens proposed, by where they came from", drafted),
        *_by_source("draft_tokens_accepted_total", "Draft tokens accepted, by where they came from", accepted),
    ]


def _by_source(name: str, help: str, counts: dict[str, int]) -> list[str]:
    head = [f"# HELP pyjet:{name} {help}", f"# TYPE pyjet:{name} counter"]
    return head + [f'pyjet:{name}{{source="{source}"}} {count}' for source, count in counts.items()]


def _item(kind: str, name: str, help: str, value: float, *, prefix: str = "llamacpp:") -> list[str]:
    full = prefix + name
    return [f"# HELP {full} {help}", f"# TYPE {full} {kind}", f"{full} {value:.6g}"]


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
