"""The engine requests that together write one text: one, and another for each time that its thoughts are ended early
or its context is shifted.

The engine samples every token. Tokens that must come are therefore put behind what was generated, as a prompt that the
next request goes on from; what the engine already knows of it is reused. A shifted context is such a prompt, too, but
its tokens behind the gap are read again. Token counts and times are told as if one request had written all.
"""

from __future__ import annotations

from dataclasses import replace

from pyjet.engine.request import Timings
from pyjet.server.choice import Choice

_OF_THE_FIRST = frozenset({"cache_n", "prompt_n", "prompt_ms", "queue_ms"})


class Writing:
    """``request`` is the one that runs now. ``untold`` tokens were put in front of its answer and not yet passed on.

    ``memory`` is the sampler's, behind the last token of the text: the next request's sampler goes on from it.
    """

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.request = choice.request
        self.untold: tuple[int, ...] = ()
        self.memory = choice.request.memory
        self._before: Timings | None = None
        self._n_forced = 0

    @property
    def n_kept(self) -> int:
        """How many tokens of the present request belong to the text."""
        n_before = self._n_forced + (self._before.predicted_n if self._before is not None else 0)
        return max(0, self.choice.n_decoded + len(self.untold) - n_before)

    @property
    def tokens(self) -> tuple[int, ...]:
        """What the present request has in its context: its prompt, and what it generated for the text."""
        return (*self.request.prompt, *self.choice.tokens[self.choice.n_decoded - self.n_kept :])

    def has_room(self, n_tokens: int, n_ctx: int) -> bool:
        """Whether so many tokens may come and the answer can go on behind them."""
        limit = self.choice.request.max_tokens
        return (limit < 0 or self.choice.n_decoded + n_tokens < limit) and len(self.tokens) + n_tokens + 1 < n_ctx

    def force(self, tokens: tuple[int, ...], request_id: str, timings: Timings | None = None) -> None:
        """Go on with these tokens. ``timings``: what the present request took until now; None: it did not start."""
        self._go_on((*self.tokens, *tokens), tokens, request_id, timings)
        self._n_forced += len(tokens)
        self.untold = tokens

    def shift(self, tokens: tuple[int, ...], request_id: str, timings: Timings) -> None:
        """Go on behind ``tokens``, some of what the present request had in its context; ``timings`` are its own."""
        n_same = next((i for i, (a, b) in enumerate(zip(tokens, self.tokens)) if a != b), len(tokens))
        self.choice.n_dropped += len(self.tokens) - len(tokens)
        self._go_on(tokens, (), request_id, timings)
        starts = tuple(start for start in self.request.boundaries if start <= n_same)
        self.request = replace(self.request, boundaries=starts)

    def _go_on(
        self, prompt: tuple[int, ...], tokens: tuple[int, ...], request_id: str, timings: Timings | None
    ) -> None:
        """The next request; ``tokens`` are forced. It has waited already, unless none ran before (no ``timings``)."""
        first, generated, n_kept = self.choice.request, self.choice.tokens, self.n_kept
        limit = first.max_tokens
        self.request = replace(
            self.request,
            id=request_id,
            prompt=prompt,
            max_tokens=limit if limit < 0 else limit - len(generated) - len(tokens),
            priority=first.priority + (timings is not None),
            cache_prompt=first.cache_prompt or timings is not None,
            return_progress=first.return_progress and timings is None,
            grammar=first.grammar and first.grammar.behind((*generated, *tokens)),
            n_before=len(generated) + len(tokens),
            memory=self.memory,
        )
        if timings is not None:
            timings = timings._replace(predicted_n=n_kept)
            self._before = timings if self._before is None else _added(self._before, timings)

    def total(self, now: Timings) -> Timings:
        """Timings of the whole text, from those of the present request."""
        if self._before is None and not self._n_forced:
            return now
        n_prompt = len(self.choice.request.prompt)
        cache_n = min(now.cache_n, n_prompt)  # forced tokens are not part of the client's prompt
        own = now if self._before is not None else now._replace(cache_n=cache_n, prompt_n=n_prompt - cache_n)
        total = own if self._before is None else _added(self._before, own)
        return total._replace(predicted_n=total.predicted_n + self._n_forced)


def _added(first: Timings, second: Timings) -> Timings:
    """Both one after the other: reading the prompt again, and waiting for that, is time of generation."""
    sums = {
        name: getattr(first, name) + getattr(second, name) for name in Timings._fields if name not in _OF_THE_FIRST
    }
    sums["predicted_ms"] += second.queue_ms + second.prompt_ms
    return first._replace(**sums)
