"""Prompts that begin alike and are sent at the same time: one is read, the others wait for its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyjet.engine.prefix_tree import Tokens, n_equal
from pyjet.engine.sequence import Sequence


@dataclass(frozen=True)
class Leader:
    """``sequence`` is about to compute the first ``n_common`` rows, which are the same for both."""

    sequence: Sequence
    n_common: int


def find_leader(prompt: Tokens, priority: int, running: Iterable[Sequence], n_known: int, gain: int) -> Leader | None:
    """The running sequence that will have the most rows in common with a prompt of which ``n_known`` are known.

    It will have at least ``gain`` more than these, has not come to the end of them yet, and can stop there. It is not
    less urgent, and it does not wait itself.
    """
    best = None
    for sequence in running:
        if sequence.is_decoding or sequence.request.priority < priority:
            continue
        n_common = min(n_equal(prompt, sequence.tokens[: sequence.n_to_read]), len(prompt) - 1, sequence.n_to_read - 1)
        if n_common > sequence.n_computed and n_common >= max(n_known + gain, best.n_common + 1 if best else 0):
            best = Leader(sequence, n_common)
    return best
