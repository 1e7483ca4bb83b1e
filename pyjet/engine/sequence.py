"""One request that runs or was preempted: its tokens, its slot and pages, how far it got, and its clock."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyjet.engine.pages import PageLease, PagePool
from pyjet.engine.request import GenerationRequest, Timings
from pyjet.engine.sampling import Sampler

Clock = Callable[[], float]  # seconds, monotonic


class Sequence:
    """State of a request since its start. ``n_computed`` rows are in the context; the next row is at that position.

    A sequence reads (``to_read``: its prompt, after a preemption also what it had generated) and then decodes, one
    token a step. ``n_reached`` is the most rows it ever had in the context, ``longest`` the most it can get.
    """

    def __init__(
        self, request: GenerationRequest, id_task: int, t_queued: float, pool: PagePool, longest: int, n_vocab: int
    ) -> None:
        self.request = request
        self.id_task = id_task
        self.t_queued = t_queued
        self.order = (-request.priority, id_task)  # the smaller, the more urgent
        self.slot = -1
        self.lease = PageLease(pool)
        self._page_tokens = pool.page_tokens
        self.page_table = np.zeros(pool.pages_for(longest), np.int32)
        self.n_table = 0
        self.n_covered = 0  # positions below this have a page
        self.n_prompt = len(request.prompt)
        # Tokens to generate at most; llama-server answers at least one. None: no limit of the request's own.
        self.max_tokens = None if request.max_tokens < 0 else max(1, request.max_tokens)
        self.to_read = np.array(request.prompt, np.int32)
        self.n_to_read = self.n_prompt
        self.sampler = Sampler(
            request.sampling, n_vocab, n_probs=request.n_probs, post_probs=request.post_sampling_probs
        )
        self.sampler.accept_prompt(request.prompt)
        self.n_computed = 0
        self.n_reached = 0
        self.is_resumed = False
        self.generated: list[int] = []
        self.token_times: list[float] = []
        self.t_started = 0.0
        self.t_prompt = 0.0  # end of the newest prompt chunk

    @property
    def is_decoding(self) -> bool:
        return self.n_computed >= self.n_to_read

    @property
    def n_left_to_read(self) -> int:
        return max(0, self.n_to_read - self.n_computed)

    def rows_within(self, n: int) -> int:
        """How many of at most ``n`` rows it can read in the next step."""
        return min(n, self.n_left_to_read)

    @property
    def n_tokens(self) -> int:
        """Prompt and answer; the newest token of an answer is not computed yet."""
        return self.n_prompt + len(self.generated)

    def grow(self, n_pages: int) -> bool:
        """Own ``n_pages`` pages and list them in ``page_table``. False, and nothing changes, when they are not free."""
        if not self.lease.grow(n_pages):
            return False
        pages = self.lease.pages
        self.page_table[self.n_table : len(pages)] = pages[self.n_table :]
        self.n_table = len(pages)
        self.n_covered = self.n_table * self._page_tokens
        return True

    def advance(self, n_rows: int) -> int:
        """``n_rows`` more rows are in the context; how many of them had been there before."""
        n_again = min(n_rows, self.n_reached - self.n_computed)
        self.n_computed += n_rows
        self.n_reached = max(self.n_reached, self.n_computed)
        return n_again

    def preempt(self) -> None:
        """Give up the pages. What is known so far is read again; then it goes on with the same numbers.

        The last row read is the one that decoding would have computed next, and rows do not depend on the batch
        they are in. Nothing is drawn while reading, so the sampler is where it was.
        """
        self.lease.free()
        self.n_table = self.n_covered = self.n_computed = 0
        self.to_read = np.array([*self.request.prompt, *self.generated], np.int32)
        self.n_to_read = len(self.to_read)
        self.is_resumed = True

    def timings(self, keep_tokens: int | None = None) -> Timings:
        """Times so far, or as they were when ``keep_tokens`` tokens had been generated.

        A preempted request's wait and second reading pass between two of its tokens: they are in ``predicted_ms``
        (``prompt_ms`` when there was no token yet), because that is how long the client waited.
        """
        n = len(self.token_times) if keep_tokens is None else min(keep_tokens, len(self.token_times))
        t_first = self.token_times[0] if self.token_times else self.t_prompt
        return Timings(
            cache_n=0,
            prompt_n=min(self.n_reached, self.n_prompt),
            prompt_ms=max(0.0, t_first - self.t_started) * 1e3,
            predicted_n=n,
            predicted_ms=max(0.001, (self.token_times[n - 1] - t_first) * 1e3) if n else 0.0,
            queue_ms=(self.t_started - self.t_queued) * 1e3,
        )
