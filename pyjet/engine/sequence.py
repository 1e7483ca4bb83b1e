"""One request that runs: its tokens, its slot and pages, how far it got, and its clock."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyjet.engine.pages import PageLease
from pyjet.engine.request import GenerationRequest, Timings
from pyjet.engine.sampling import Sampler

Clock = Callable[[], float]  # seconds, monotonic


class Sequence:
    """State of a running request. ``n_computed`` rows are in the context; the next row is at that position."""

    def __init__(self, request: GenerationRequest, id_task: int, slot: int, lease: PageLease, n_vocab: int) -> None:
        self.request = request
        self.id_task = id_task
        self.slot = slot
        self.lease = lease
        self.prompt = np.array(request.prompt, np.int32)
        self.n_prompt = len(request.prompt)
        self.page_table = np.zeros(lease.n_reserved, np.int32)
        self.n_table = 0
        self.sampler = Sampler(
            request.sampling, n_vocab, n_probs=request.n_probs, post_probs=request.post_sampling_probs
        )
        self.sampler.accept_prompt(request.prompt)
        self.n_computed = 0
        self.generated: list[int] = []
        self.token_times: list[float] = []
        self.t_queued = 0.0
        self.t_started = 0.0
        self.t_prompt = 0.0  # end of the newest prompt chunk

    @property
    def is_decoding(self) -> bool:
        return self.n_computed >= self.n_prompt

    @property
    def n_prompt_left(self) -> int:
        return max(0, self.n_prompt - self.n_computed)

    @property
    def max_tokens(self) -> int | None:
        """Tokens to generate at most; llama-server answers at least one. None: no limit of the request's own."""
        return None if self.request.max_tokens < 0 else max(1, self.request.max_tokens)

    def cover(self, n_tokens: int, page_tokens: int) -> None:
        """Own the pages for positions below ``n_tokens`` and list them in ``page_table``."""
        n_pages = -(-n_tokens // page_tokens)
        if n_pages > self.n_table:
            self.lease.grow(n_pages)
            self.page_table[self.n_table : n_pages] = self.lease.pages[self.n_table : n_pages]
            self.n_table = n_pages

    def timings(self, keep_tokens: int | None = None) -> Timings:
        """Times so far, or as they were when ``keep_tokens`` tokens had been generated."""
        n = len(self.token_times) if keep_tokens is None else min(keep_tokens, len(self.token_times))
        t_first = self.token_times[0] if self.token_times else self.t_prompt
        return Timings(
            cache_n=0,
            prompt_n=min(self.n_computed, self.n_prompt),
            prompt_ms=max(0.0, t_first - self.t_started) * 1e3,
            predicted_n=n,
            predicted_ms=max(0.001, (self.token_times[n - 1] - t_first) * 1e3) if n else 0.0,
            queue_ms=(self.t_started - self.t_queued) * 1e3,
        )
