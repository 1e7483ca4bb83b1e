"""Which tokens stay when a text goes on although its slot is full."""

from __future__ import annotations

_SPARE = 4  # tokens of the slot that the kept start leaves free at least


def n_kept(n_keep: int, n_prompt: int, n_ctx: int, *, has_bos: bool) -> int:
    """Tokens at the start that stay: ``n_keep`` (-1: the whole prompt) and the token that begins every prompt."""
    wanted = n_prompt if n_keep < 0 else n_keep + has_bos
    return min(wanted, n_ctx - _SPARE)


def shifted(tokens: tuple[int, ...], n_start: int, n_discard: int) -> tuple[int, ...]:
    """``tokens`` without ``n_discard`` of those behind the first ``n_start``; 0: half of them. The last one stays."""
    n_behind = len(tokens) - n_start
    n_dropped = min(n_discard or n_behind // 2, n_behind - 1)
    return tokens[:n_start] + tokens[n_start + max(1, n_dropped) :]
