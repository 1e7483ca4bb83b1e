"""Which rows the next step carries: every decoding sequence's next ones, and fair prompt chunks beside them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from pyjet.engine.sequence import Sequence
from pyjet.engine.step_budget import StepBudget

# New tokens of all prompts that are being read: up to so many are read at once, also while others decode.
SHORT = 1024
ORDER = attrgetter("order")


def plan(
    sequences: Iterable[Sequence], max_rows: int, budget: StepBudget, chunk_rows: int = 0
) -> list[tuple[Sequence, int]]:
    """(sequence, rows) of the next step, in slot-independent order.

    Decoding sequences have a row and one for each draft that is to be verified. They never wait for a prompt, whatever
    their priorities. Short prompts are read at once. Others get the rows that the budget allows, up to ``chunk_rows``
    (0: ``max_rows``) in all: the most urgent ones first, equally urgent ones in equal shares. As long as the budget
    allows as many rows as there are equally urgent prompts, each of them advances. Whoever reads its tokens again after
    a preemption counts as a prompt.
    """
    ordered = sorted(sequences, key=ORDER)
    rows = [(s, 1 + len(s.verifying)) for s in ordered if s.n_computed >= s.n_to_read]
    n_decoding = sum([n for _, n in rows])
    if len(rows) == len(ordered):
        budget.only_decodes(n_decoding)
        return rows
    prompts = [s for s in ordered if not s.is_decoding]
    are_short = sum(s.n_to_read - s.n_cached for s in prompts) <= SHORT
    room = (max_rows if are_short else chunk_rows or max_rows) - n_decoding
    wanted = min(room, sum(s.rows_within(room) for s in prompts)) if room > 0 else 0
    return rows + by_urgency(prompts, budget.chunk_rows(n_decoding, wanted, are_short=are_short))


def by_urgency(prompts: Iterable[Sequence], n_rows: int) -> list[tuple[Sequence, int]]:
    """``n_rows`` for the most urgent prompts; the others get what those cannot take. Prompts are in order."""
    result: list[tuple[Sequence, int]] = []
    for _, group in groupby(prompts, key=lambda s: s.request.priority):
        shares = share(list(group), n_rows)
        n_rows -= sum(n for _, n in shares)
        result += shares
    return result


def share(prompts: list[Sequence], n_rows: int) -> list[tuple[Sequence, int]]:
    """Cut ``n_rows`` among prompts; those that get none are left out.

    Equal shares, so a prompt that needs no more than its share ends. What it leaves, and what others cannot take
    before their next stop, goes to the first one that can take it.
    """
    if n_rows <= 0:
        return []
    equal = max(1, n_rows // len(prompts))
    given = [0] * len(prompts)
    for portion in (equal, n_rows):
        for i, prompt in enumerate(prompts):
            more = prompt.rows_within(given[i] + min(portion, n_rows)) - given[i]
            given[i] += more
            n_rows -= more
    return [(s, n) for s, n in zip(prompts, given, strict=True) if n > 0]
