"""Where two greedy answers part, and whether that is rounding.

At the first token that differs both engines have read the same text. How far pyjet's logit of its own
choice is above that of llama.cpp's choice is the gap. It is rounding when llama.cpp, computing its own
answer in other batches, moves the two best logits of a row against each other by as much somewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cli.llama_cpp import Logits, Tokens


@dataclass(frozen=True)
class Answer:
    """tokens int32 [n], the last one an end token unless n is the limit; logits float32 [n, n_vocab]: row i chose
    token i."""

    tokens: Tokens
    logits: Logits


@dataclass(frozen=True)
class Difference:
    """position: tokens that agree before it. gap: pyjet's logit of its choice less that of llama.cpp's. peer_gap:
    llama.cpp's logit of its choice less that of pyjet's."""

    prompt: str
    position: int
    ours: int
    theirs: int
    gap: float
    peer_gap: float


@dataclass(frozen=True)
class Comparison:
    """One prompt. same_modes: llama.cpp's other modes that would have written the same. noise: the largest change
    of the distance of the two best logits of a row between llama.cpp's modes."""

    n_tokens: int
    difference: Difference | None
    same_modes: dict[str, bool]
    noise: float


@dataclass(frozen=True)
class Verdict:
    """All prompts of a file."""

    comparisons: Sequence[Comparison]

    @property
    def bound(self) -> float:
        """llama.cpp's own noise over all rows of all answers, in logits."""
        return max(c.noise for c in self.comparisons)

    @property
    def differences(self) -> list[Difference]:
        return [c.difference for c in self.comparisons if c.difference]

    @property
    def beyond(self) -> list[Difference]:
        """Differences that rounding does not explain."""
        return [d for d in self.differences if not d.gap <= self.bound]

    def same_share(self, mode: str | None = None) -> float:
        """Share of answers that pyjet, or llama.cpp in one of its other modes, writes as llama.cpp does."""
        same = [c.difference is None if mode is None else c.same_modes[mode] for c in self.comparisons]
        return sum(same) / len(same)


def compare(prompt: str, ours: Answer, theirs: Answer, others: dict[str, Logits]) -> Comparison:
    """Compare two answers. others: mode -> llama.cpp's logits float32 [len(theirs), n_vocab] for its own answer."""
    return Comparison(
        n_tokens=len(theirs.tokens),
        difference=first_difference(prompt, ours, theirs),
        same_modes={mode: bool((rows.argmax(1) == theirs.tokens).all()) for mode, rows in others.items()},
        noise=max(margin_noise(theirs.logits, rows) for rows in others.values()),
    )


def first_difference(prompt: str, ours: Answer, theirs: Answer) -> Difference | None:
    """None when the answers are equal. An answer that ends early differs by its end token, so one is found."""
    for position, (a, b) in enumerate(zip(ours.tokens.tolist(), theirs.tokens.tolist())):
        if a != b:
            mine, peer = ours.logits[position], theirs.logits[position]
            return Difference(prompt, position, a, b, float(mine[a] - mine[b]), float(peer[b] - peer[a]))
    return None


def margin_noise(rows: Logits, others: Logits) -> float:
    """The largest change, over rows, of the distance of the two tokens that are best in `rows`; both [n, n_vocab]."""
    best = np.argpartition(rows, -2, axis=1)[:, -2:]
    margin = np.diff(np.take_along_axis(rows, best, 1))
    return float(np.abs(margin - np.diff(np.take_along_axis(others, best, 1))).max())
