"""Plain numbers about the engine's work since its start. The server only reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Totals; seconds as floats. A request is added when it ends, so totals equal the sums of all Timings."""

    prompt_tokens: int = 0  # processed, reused ones excluded
    prompt_tokens_cached: int = 0
    prompt_seconds: float = 0.0
    prefix_hits: int = 0  # requests that reused something
    predicted_tokens: int = 0
    predicted_tokens_timed: int = 0  # without each answer's first token: predicted_seconds covers these
    predicted_seconds: float = 0.0
    n_decode: int = 0  # steps
    n_busy_slots_sum: int = 0  # slots with rows, summed over steps; / n_decode = mean batch
    n_tokens_max: int = 0  # longest sequence seen
    draft_tokens: int = 0  # drafts that were verified, counted in every step
    draft_tokens_accepted: int = 0
    drafts: int = 0  # steps of a sequence with any
    accepted_per_position: tuple[int, ...] = ()
    draft_tokens_mtp: int = 0  # those of the MTP block
    draft_tokens_mtp_accepted: int = 0
    draft_tokens_lookup: int = 0  # those that followed the newest tokens before
    draft_tokens_lookup_accepted: int = 0
    draft_tokens_grammar: int = 0  # those that a grammar left no choice about
    draft_tokens_grammar_accepted: int = 0
    preemptions: int = 0  # times that a sequence lost its pages to a more urgent one
    tokens_recomputed: int = 0  # rows computed again after that; not part of prompt_tokens
    requests_processing: int = 0  # now
    requests_deferred: int = 0  # now, waiting for a slot or for memory, preempted ones included
    requests_total: int = 0
    requests_finished: int = 0  # ended with an answer, whole or cut short
    queue_seconds: float = 0.0  # waiting for a slot, summed over requests
    first_token_seconds: float = 0.0  # from request to first token, waiting included, summed over requests
    swaps_out: int = 0  # times that pages or a state moved to host memory
    swaps_in: int = 0  # and back
    swap_seconds: float = 0.0  # copying, both ways
    pages_used: int = 0  # now
    pages_total: int = 0
    pages_cached: int = 0  # now, held only for prompts to come
    checkpoints: int = 0  # now, recurrent states kept for prompts to come
    host_bytes: int = 0  # now, pages and states in host memory
    step_seconds: float = 0.0  # inside the native step
    host_seconds: float = 0.0  # planning and sampling between steps
    engine_restarts: int = 0
