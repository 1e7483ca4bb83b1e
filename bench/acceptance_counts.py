"""What a server counts about drafts, read from /metrics and the timings of its answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

_LINE = re.compile(r'^llamacpp:spec_decode_(?P<name>\w+?)(?:\{position="(?P<position>\d+)"\})? (?P<value>\S+)$')
_NAMES = {"num_drafts_total": "drafts", "num_draft_tokens_total": "drafted", "num_accepted_tokens_total": "accepted"}


@dataclass(frozen=True)
class Counts:
    """``drafts`` were verified, with ``drafted`` tokens, of which ``accepted`` were right.

    ``positions``: how many of these were the first of their draft, the second, ... ``tokens``: generated ones without
    each answer's first, which needs no step of its own.
    """

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    positions: tuple[int, ...] = ()
    tokens: int = 0

    def __add__(self, other: Counts) -> Counts:
        return self._with(other, 1)

    def __sub__(self, other: Counts) -> Counts:
        return self._with(other, -1)

    def _with(self, other: Counts, sign: int) -> Counts:
        return Counts(
            self.drafts + sign * other.drafts,
            self.drafted + sign * other.drafted,
            self.accepted + sign * other.accepted,
            tuple(a + sign * b for a, b in zip_longest(self.positions, other.positions, fillvalue=0)),
            self.tokens + sign * other.tokens,
        )

    @property
    def tokens_per_step(self) -> float:
        """Every step gives its accepted drafts and one token more."""
        return self.tokens / max(1, self.tokens - self.accepted)

    def figures(self) -> dict[str, Any]:
        """Rounded: tokens a step, accepted tokens a step, share of drafted tokens, share by position."""
        found: dict[str, Any] = {
            "tokens_per_step": round(self.tokens_per_step, 3),
            "accepted_per_step": round(self.tokens_per_step - 1, 3),
            "tokens": self.tokens,
        }
        if self.drafts:
            found |= {
                "accepted_share": round(self.accepted / self.drafted, 4),
                "accepted_at": [round(count / self.drafts, 4) for count in self.positions],
            }
        return found


def counts_of_metrics(text: str) -> Counts:
    """Counts of a /metrics page since the server's start; no tokens."""
    totals: dict[str, int] = {}
    positions: dict[int, int] = {}
    for line in text.splitlines():
        if (match := _LINE.match(line)) is None:
            continue
        value = round(float(match["value"]))
        if match["position"] is not None:
            positions[int(match["position"])] = value
        elif match["name"] in _NAMES:
            totals[_NAMES[match["name"]]] = value
    return Counts(**totals, positions=tuple(positions[i] for i in sorted(positions)))


def tokens_of_answer(answer: dict[str, Any]) -> int:
    """Generated tokens of an answer without its first."""
    return max(0, int(answer["timings"]["predicted_n"]) - 1)
