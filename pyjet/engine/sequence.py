"""One request that runs or was preempted: its tokens, its slot and pages, how far it got, and its clock."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from pyjet.engine.pooling import Pool
from pyjet.engine.request import GenerationRequest, Reuse, Timings
from pyjet.engine.sampling import Sampler

if TYPE_CHECKING:
    from pyjet.engine.constraint import Constraint
    from pyjet.engine.guesses import Guesses
    from pyjet.engine.prefix_tree import Checkpoint, CheckpointKind, Tokens
    from pyjet.engine.synthetic import Lots

Clock = Callable[[], float]  # seconds, monotonic


class Sequence:
    """State of a request since its start. ``n_computed`` rows are in the context; the next row is at that position.

    A sequence reads (its prompt; after a preemption that could keep nothing also what it had generated) and then
    decodes: a step carries its newest token and ``verifying``, drafts of the ones behind it, and as many rows as hold
    right tokens are in the context afterwards. ``n_reached`` is the most rows it ever had there, ``longest`` the most
    it can get. While reading it stops at ``stops``, so that its state there can be kept, and at ``tail_from`` the rows
    of the prompt begin that are speculative: they leave the state where it is, which saves a step of its own for them.
    With a ``pool`` it only reads. ``prompt``: the request's as an array, where there is one.
    """

    def __init__(
        self, request: GenerationRequest, id_task: int, t_queued: float, longest: int, page_tokens: int, n_vocab: int,
        prompt: Tokens | None = None,
    ) -> None:  # fmt: skip
        self.request = request
        self.id_task = id_task
        self.t_queued = t_queued
        self.order = (-request.priority, id_task)  # the smaller, the more urgent
        self.slot = -1
        self.state_slot = -1
        self.pages: list[int] = []  # those it holds, in the order of positions
        self.longest = longest
        self.page_table = np.zeros(-(-longest // page_tokens), np.int32)
        self.table_version = 0  # changes when entries do; growing does not count
        self.n_covered = 0  # positions below this have a page
        self._page_tokens = page_tokens
        self.n_prompt = len(request.prompt)
        # Tokens to generate at most; llama-server answers at least one. None: no limit of the request's own.
        self.max_tokens = None if request.max_tokens < 0 else max(1, request.max_tokens)
        self.tokens = np.zeros(longest + 1, np.int32)
        self._token_at = self.tokens.data  # the same, faster for single ones
        self.tokens[: self.n_prompt] = request.prompt if prompt is None else prompt
        self.n_to_read = self.n_prompt
        self.sampler = Sampler(
            request.sampling,
            n_vocab,
            n_probs=request.n_probs,
            post_probs=request.post_sampling_probs,
            is_constrained=request.grammar is not None,
            index=request.n_before,
            memory=request.memory,
        )
        self.sampler.accept_prompt(request.prompt)
        self.pool = None if request.pooling is None else Pool(request.pooling, self.n_prompt)
        self.n_computed = 0
        self.n_pending = 0  # of these rows the last ones, whose state is applied in the next step
        self.verifying: list[int] = []  # drafts in the step that is planned or computed
        self.n_draft = 0  # drafts of the MTP block that this step is asked for
        self.constraint: Constraint | None = None  # where the answer is in its grammar
        self.mask_row = -1  # of the first token of this step (pyjet.engine.mask_rows)
        self.guesses: Guesses | None = None  # what is known about tokens to come; None: nothing is drafted
        self.n_drafted = self.n_right = 0  # drafts that were verified, and those of them that were right
        self.n_reached = 0
        self.n_cached = 0  # tokens of the prompt that had been computed for others
        self.reuse: Reuse | None = None
        self.stops: list[int] = []  # ascending
        self.shared_stops: set[int] = set()  # those that other conversations have in common with this one
        self.tail_from: int | None = None
        self.newest_kept: Checkpoint | None = None  # of those on its way
        self.leaves_answers = False  # it went another way than its conversation before
        self.parked: Checkpoint | None = None
        self.is_resumed = False
        self.n_preemptions = 0
        self.generated: list[int] = []
        self.token_times: list[float] = []
        self.t_started = 0.0
        self.t_prompt = 0.0  # end of the newest prompt chunk
        self.swap_seconds = 0.0  # for its pages and state to come back from the host, and others to make room

    @property
    def is_decoding(self) -> bool:
        return self.n_computed >= self.n_to_read

    @property
    def lots(self) -> Lots | None:
        """By which drafts are right, in benchmarks."""
        return None if self.guesses is None else self.guesses.lots

    @property
    def n_committed(self) -> int:
        """Rows that the recurrent state holds."""
        return self.n_computed - self.n_pending

    @property
    def n_rows(self) -> int:
        """Of its next step, when it decodes."""
        return 1 + len(self.verifying)

    @property
    def n_ahead(self) -> int:
        """Positions behind the newest token's that can ever be computed: more drafts are of no use."""
        return self.longest - self.n_tokens

    @property
    def n_tokens(self) -> int:
        """Prompt and answer; the newest token of an answer is not computed yet."""
        return self.n_prompt + len(self.generated)

    def rows_within(self, n: int) -> int:
        """How many of at most ``n`` rows of a prompt the next step can take: it must not pass a stop."""
        end = min(self.n_computed + n, self.n_to_read, self.stops[0] if self.stops else self.n_to_read)
        if self.tail_from is not None and self.tail_from < end < self.n_to_read:
            end = self.tail_from
        return max(0, end - self.n_computed)

    def n_chosen(self, n_rows: int) -> int:
        """Behind how many of the next ``n_rows`` rows a token is chosen."""
        if self.is_decoding:
            return n_rows
        return int(self.pool is None and self.n_computed + n_rows >= self.n_to_read)

    def n_speculative(self, n_rows: int) -> int:
        """How many of the next ``n_rows`` rows are speculative."""
        if self.is_decoding:
            return len(self.verifying)
        if self.tail_from is None or self.n_computed + n_rows < self.n_to_read:
            return 0
        return self.n_to_read - max(self.tail_from, self.n_computed)

    def add_shared_stop(self, position: int) -> None:
        """Stop where another prompt goes another way, if that lies ahead."""
        if not self.n_computed < position < self.n_to_read:
            return
        self.shared_stops.add(position)
        if position in self.stops or position == self.tail_from:
            return
        bisect.insort(self.stops, position)
        if self.tail_from is not None and position > self.tail_from:
            bisect.insort(self.stops, self.tail_from)
            self.tail_from = None

    def add_pages(self, pages: Iterable[int]) -> None:
        """Hold more pages, and list them in ``page_table``."""
        n_before = len(self.pages)
        self.pages.extend(pages)
        self.page_table[n_before : len(self.pages)] = self.pages[n_before:]
        self.n_covered = len(self.pages) * self._page_tokens

    def replace_page(self, index: int, page: int) -> None:
        """Another page with the same contents takes the place of one."""
        self.pages[index] = self.page_table[index] = page
        self.table_version += 1

    def take_all_pages(self) -> list[int]:
        """Hold none any more; returns those it held."""
        pages, self.pages = self.pages, []
        self.n_covered = 0
        self.table_version += 1
        return pages

    def add_token(self, token: int) -> None:
        self.tokens[self.n_tokens] = token
        self.generated.append(token)

    def advance(self, n_rows: int) -> int:
        """``n_rows`` more rows of what it reads are in the context; how many of them had been there before."""
        self.n_pending = self.n_speculative(n_rows)
        n_again = min(n_rows, self.n_reached - self.n_computed)
        self.n_computed += n_rows
        self.n_reached = max(self.n_reached, self.n_computed)
        return n_again

    def advance_decoding(self, n_right: int) -> None:
        """One more row is in the context, behind ``n_right`` drafts of the same step that were right.

        The first row's state is applied, those of drafts wait for the next step. Pages of rows behind it hold nothing.
        """
        self.n_pending = n_right
        self.n_computed += 1
        self.n_reached = max(self.n_reached, self.n_computed)

    def take_drafts(self, tokens: list[int], time: float) -> None:
        """All of ``tokens`` are its newest ones: drafts of a step that were right, and the token behind them.

        The same as ``advance_decoding`` and ``add_token`` for one after the other.
        """
        n, begin = len(tokens), self.n_prompt + len(self.generated)
        self.n_pending = n - 1
        self.n_computed = n_computed = self.n_computed + n
        if n_computed > self.n_reached:
            self.n_reached = n_computed
        self.n_right += n - 1
        for i, token in enumerate(tokens, begin):
            self._token_at[i] = token
        self.generated += tokens
        self.token_times += [time] * n
        self.sampler.accept_all(tokens)
        if self.constraint is not None:
            for token in tokens:
                self.constraint.accept(token)

    def passed_stop(self) -> CheckpointKind | None:
        """What kind of stop the committed rows have come to, which is then done with; None: to none."""
        at = self.n_committed
        if self.tail_from == at:
            self.tail_from = None
        elif self.stops and self.stops[0] == at:
            del self.stops[0]
        else:
            return None
        return "shared" if at in self.shared_stops else "turn"

    def preempt(self, parked: Checkpoint | None) -> None:
        """It holds no pages any more. From ``parked`` it goes on where it was; without, everything is read again.

        The last row read is then the one that decoding would have computed next, and rows do not depend on the batch
        they are in. Nothing is drawn while reading, so the sampler is where it was. The MTP block's KV of a row holds
        the token after it, so it may be that of other tokens where sequences part: drafts are a little worse then.
        """
        self.parked = parked
        self.n_computed = self.n_pending = self.n_draft = 0
        self.verifying = []
        if self.guesses is not None:
            self.guesses.forget()
        self.stops, self.tail_from = [], None
        self.n_to_read = self.n_tokens
        self.is_resumed = True
        self.n_preemptions += 1

    def timings(self, keep_tokens: int | None = None) -> Timings:
        """Times so far, or as they were when ``keep_tokens`` tokens had been generated.

        A preempted request's wait passes between two of its tokens: it is in ``predicted_ms`` (``prompt_ms`` when
        there was no token yet), because that is how long the client waited.
        """
        n = len(self.token_times) if keep_tokens is None else min(keep_tokens, len(self.token_times))
        t_first = self.token_times[0] if self.token_times else self.t_prompt
        return Timings(
            cache_n=self.n_cached,
            prompt_n=max(0, min(self.n_reached, self.n_prompt) - self.n_cached),
            prompt_ms=max(0.0, t_first - self.t_started) * 1e3,
            predicted_n=n,
            predicted_ms=max(0.001, (self.token_times[n - 1] - t_first) * 1e3) if n else 0.0,
            queue_ms=(self.t_started - self.t_queued) * 1e3,
            swap_ms=self.swap_seconds * 1e3,
            n_preemptions=self.n_preemptions,
            draft_n=self.n_drafted,
            draft_n_accepted=self.n_right,
        )
