"""Where a prompt's recurrent state is worth keeping: the places that later prompts will come back to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stops:
    """``at``: positions, ascending. ``tail_from``: the rows behind it may be speculative; None: no tail.

    ``shared``: those of ``at`` that other conversations are likely to have in common with this one.
    """

    at: tuple[int, ...]
    shared: frozenset[int]
    tail_from: int | None


def plan_stops(
    n_prompt: int, boundaries: Sequence[int], n_start: int, n_common: int, *, step: int, gap: int, max_tail: int
) -> Stops:
    """Places ahead of ``n_start``, the tokens that are known already, in a prompt of ``n_prompt`` tokens.

    - Where the first message ends: system prompt and tools, which all agents of a kind share.
    - ``n_common``, where other prompts went another way than this one.
    - Where the last message starts: it is what people edit and send again.
    - Where the answer starts: templates drop the reasoning of earlier answers, so the next prompt differs behind it.
      A prompt without messages is kept just before its end, for the same prompt once more.
    - Every ``step`` tokens, at the start of a message if there is one in between. 0: at every message.

    Between two of them are ``gap`` tokens or more, which are cheaper to read again than a state is to keep. Only the
    start of the last message may be close to that of the answer.
    """
    inner = [b for b in boundaries if 0 < b < n_prompt]
    answer = inner[-1] if inner else n_prompt - 1
    last_message = [b for b in inner[-2:-1] if b - n_start >= gap]
    shared = {n_common} | set(inner[:1] if len(inner) > 1 else ())
    others = _apart([*shared, *_spaced(n_prompt, inner, n_start, step)], [n_start, *last_message, answer], gap)
    at = sorted(last_message + others)
    tail_from = answer if answer > n_start and n_prompt - answer <= max_tail else None
    if tail_from is None and answer > n_start:
        at.append(answer)
    return Stops(tuple(at), frozenset(shared.intersection(at)), tail_from)


def _spaced(n_prompt: int, inner: Sequence[int], n_start: int, step: int) -> Iterable[int]:
    """Positions at most ``step`` apart, the last message start of each stretch preferred."""
    if step <= 0:
        return inner
    places = []
    for begin in range(n_start, n_prompt - step, step):
        starts = [b for b in inner if begin < b <= begin + step]
        places.append(starts[-1] if starts else begin + step)
    return places


def _apart(wanted: Iterable[int], fixed: Sequence[int], gap: int) -> list[int]:
    """Those ahead of the first of ``fixed`` and before the last, at least ``gap`` from all of them and each other."""
    at: list[int] = []
    for position in sorted(set(wanted)):
        if fixed[0] < position < fixed[-1] and all(abs(position - other) >= gap for other in [*fixed, *at[-1:]]):
            at.append(position)
    return at
