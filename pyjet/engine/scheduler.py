"""Which rows the next step carries: every decoding sequence's next row, and fair prompt chunks beside them."""

from __future__ import annotations

from collections.abc import Iterable

from pyjet.engine.sequence import Sequence


def plan(sequences: Iterable[Sequence], max_rows: int) -> list[tuple[Sequence, int]]:
    """(sequence, rows) of the next step, in slot-independent order.

    Decoding never waits for a prompt. What is left of ``max_rows`` is shared equally among prompts, more urgent and
    older ones first; what a short prompt leaves goes to the first of the others. A prompt always gets a row as long
    as ``max_rows`` is not below the number of sequences. Whoever reads its tokens again after a preemption counts as
    a prompt.
    """
    ordered = sorted(sequences, key=lambda s: s.order)
    rows = [(s, 1) for s in ordered if s.is_decoding]
    return rows + share([s for s in ordered if not s.is_decoding], max_rows - len(rows))


def share(prompts: list[Sequence], budget: int) -> list[tuple[Sequence, int]]:
    """Cut ``budget`` rows among prompts; those that get none are left out."""
    if not prompts or budget <= 0:
        return []
    equal = max(1, budget // len(prompts))
    wanted = [s.rows_within(budget) for s in prompts]
    given = [0] * len(prompts)
    for portion in (equal, budget):
        for i, want in enumerate(wanted):
            more = min(portion, want - given[i], budget)
            given[i] += more
            budget -= more
    return [(s, s.rows_within(n)) for s, n in zip(prompts, given, strict=True) if n > 0]
