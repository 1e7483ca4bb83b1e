"""What the engine counts while it works, and the numbers of the moment beside it."""

from __future__ import annotations

from dataclasses import replace

from pyjet.engine.admission import Admission
from pyjet.engine.counters import Counters
from pyjet.engine.request import Timings
from pyjet.engine.speculation import Speculation
from pyjet.native.step import StepResult


class Counting:
    """``totals``: sums since the start. Their gauges are filled in by ``now`` only."""

    def __init__(self, admission: Admission, speculation: Speculation) -> None:
        self._admission = admission
        self._speculation = speculation
        self.totals = Counters(pages_total=admission.pool.n_pages)

    def next_task(self) -> int:
        """A request came: its number."""
        self.totals.requests_total += 1
        return self.totals.requests_total - 1

    def add_step(self, result: StepResult) -> None:
        """A step was computed."""
        self.totals.n_decode += 1
        self.totals.n_busy_slots_sum += len(self._admission.running)
        self.totals.step_seconds += result.step_us * 1e-6

    def add_finished(self, timings: Timings, n_reached: int) -> None:
        """A request that ran has ended, with ``n_reached`` rows in its context."""
        totals = self.totals
        totals.requests_finished += 1
        totals.queue_seconds += timings.queue_ms * 1e-3
        if timings.predicted_n:
            totals.first_token_seconds += (timings.queue_ms + timings.prompt_ms) * 1e-3
        totals.prompt_tokens += timings.prompt_n
        totals.prompt_tokens_cached += timings.cache_n
        totals.prompt_seconds += timings.prompt_ms * 1e-3
        totals.predicted_tokens += timings.predicted_n
        totals.predicted_tokens_timed += max(0, timings.predicted_n - 1)
        totals.predicted_seconds += timings.predicted_ms * 1e-3
        totals.n_tokens_max = max(totals.n_tokens_max, n_reached)

    def now(self) -> Counters:
        """A copy with the gauges of this moment."""
        admission, cache, drafts = self._admission, self._admission.cache, self._speculation.counts
        started = [*admission.running.values(), *(waiting.sequence for waiting in admission.waiting)]
        reached = [sequence.n_reached for sequence in started if sequence is not None]
        return replace(
            self.totals,
            n_tokens_max=max(self.totals.n_tokens_max, *reached, 0),
            draft_tokens=drafts.drafted.total(),
            draft_tokens_accepted=drafts.right.total(),
            drafts=drafts.n_drafts,
            accepted_per_position=drafts.right_at,
            draft_tokens_mtp=drafts.drafted["mtp"],
            draft_tokens_mtp_accepted=drafts.right["mtp"],
            draft_tokens_lookup=drafts.drafted["lookup"],
            draft_tokens_lookup_accepted=drafts.right["lookup"],
            draft_tokens_grammar=drafts.drafted["grammar"],
            draft_tokens_grammar_accepted=drafts.right["grammar"],
            preemptions=admission.n_preemptions,
            prefix_hits=admission.n_hits,
            swaps_out=cache.swaps.moves_out,
            swaps_in=cache.swaps.moves_in,
            swap_seconds=cache.swaps.seconds,
            pages_cached=cache.n_idle_pages,
            checkpoints=cache.n_checkpoints,
            host_bytes=cache.host_bytes,
            requests_processing=len(admission.running),
            requests_deferred=len(admission.waiting),
            pages_used=admission.pool.n_used,
        )
