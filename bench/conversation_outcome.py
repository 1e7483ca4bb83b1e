"""The figures of a run of bench.conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BOUND = 1.1  # prompt tokens processed for each new one, at most


@dataclass(frozen=True)
class Turn:
    """One request and its answer, in tokens."""

    agent: int
    turn: str  # its number; with a "b" when it is asked once more
    kind: str
    prompt: int
    new: int  # what no server can have processed before
    cached: int  # what this server reused
    processed: int  # what it read
    generated: int
    calls: int  # tools that the answer calls

    @property
    def is_counted_alike(self) -> bool:
        """The server saw as many prompt tokens as the client."""
        return self.cached + self.processed == self.prompt


def totals(turns: Sequence[Turn]) -> dict[str, Any]:
    """Sums and shares over all requests."""
    prompt, new, cached, processed = (sum(getattr(t, key) for t in turns) for key in _SUMS)
    ratio = processed / new
    return {
        "requests": len(turns),
        "prompt_tokens": prompt,
        "new_tokens": new,
        "processed_tokens": processed,
        "processed_per_new": round(ratio, 4),
        "bound": BOUND,
        "is_kept": ratio <= BOUND,
        "hit_rate": round(cached / prompt, 4),
        "best_hit_rate": round(1 - new / prompt, 4),
        "generated_tokens": sum(t.generated for t in turns),
        "tool_calls": sum(t.calls for t in turns),
        "answers_with_calls": sum(t.calls > 0 for t in turns),
        "counted_otherwise": sum(not t.is_counted_alike for t in turns),
    }


_SUMS = ("prompt", "new", "cached", "processed")


def table(turns: Sequence[Turn]) -> str:
    """A line per request."""
    words = ("prompt", "new", "read", "again", "answer", "calls")
    lines = ["agent turn kind".ljust(18) + "".join(f"{word:>8}" for word in words)]
    for t in sorted(turns, key=lambda t: (t.agent, int(t.turn.rstrip("b")), t.turn)):
        counts = (t.prompt, t.new, t.processed, t.processed - t.new, t.generated, t.calls)
        lines.append(f"{t.agent:5} {t.turn:>4} {t.kind:8}".ljust(18) + "".join(f"{n:8}" for n in counts))
    return "\n".join(lines)
