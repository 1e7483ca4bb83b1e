"""The engine requests that together write one text: one, and another for each time that its thoughts are ended early.

The engine samples every token. Tokens that must come are therefore put behind what was generated, as a prompt that the
next request goes on from; what the engine already knows of it is reused. Token counts and times are told as if one
request had written all.
"""

from __future__ import annotations

from dataclasses import replace

from pyjet.engine.request import Timings
from pyjet.server.choice import Choice

_OF_THE_FIRST = frozenset({"cache_n", "prompt_n", "prompt_ms", "queue_ms"})


class Writing:
    """``request`` is the one that runs now. ``untold`` tokens were put in front of its answer and not yet passed on."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.request = choice.request
        self.untold: tuple[int, ...] = ()
        self._before: Timings | None = None
        self._n_forced = 0

    @property
    def n_kept(self) -> int:
        """How many tokens of the present request belong to the text."""
        n_before = self._n_forced + (self._before.predicted_n if self._before is not None else 0)
        return max(0, self.choice.n_decoded + len(self.untold) - n_before)

    def has_room(self, n_tokens: int, n_ctx: int) -> bool:
        """Whether so many tokens may come and the answer can go on behind them."""
        n_decoded = self.choice.n_decoded + n_tokens
        limit = self.choice.request.max_tokens
        return (limit < 0 or n_decoded < limit) and len(self.choice.request.prompt) + n_decoded + 1 < n_ctx

    def force(self, tokens: tuple[int, ...], request_id: str, timings: Timings | None = None) -> None:
        """Go on with these tokens. ``timings``: what the present request took until now; None: it did not start."""
        first, generated = self.choice.request, self.choice.tokens
        n_kept = self.n_kept
        limit = first.max_tokens
        self.request = replace(
            first,
            id=request_id,
            prompt=(*first.prompt, *generated, *tokens),
            max_tokens=limit if limit < 0 else limit - len(generated) - len(tokens),
            priority=first.priority + (timings is not None),  # it has waited already
            cache_prompt=first.cache_prompt or timings is not None,
            return_progress=first.return_progress and timings is None,
            grammar=first.grammar and first.grammar.behind((*generated, *tokens)),
        )
        if timings is not None:
            timings = timings._replace(predicted_n=n_kept)
            self._before = timings if self._before is None else _added(self._before, timings)
        self._n_forced += len(tokens)
        self.untold = tokens

    def total(self, now: Timings) -> Timings:
        """Timings of the whole text, from those of the present request."""
        if not self._n_forced:
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
