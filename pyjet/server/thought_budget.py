"""How long a model may think: tokens are counted from ``<think>`` until the thoughts end by themselves, or must end."""

from __future__ import annotations

from dataclasses import dataclass

START, END, CALL = "<think>", "</think>", "<tool_call>"
_TAIL = len(CALL) - 1  # of earlier text, in which a tag may have begun


@dataclass(frozen=True)
class ThoughtRule:
    """``budget``: tokens for each thought, -1: any number. ``end``: the tokens that end thoughts before their time.

    ``n_open``: the prompt ends inside thoughts, with so many tokens behind their tag; -1: it does not.
    """

    budget: int
    end: tuple[int, ...]
    n_open: int = -1


class ThoughtBudget:
    """Follows the text of one answer, token by token."""

    def __init__(self, rule: ThoughtRule) -> None:
        self._budget = rule.budget
        self._inside = rule.n_open >= 0
        self._count = max(0, rule.n_open)
        self._ended = False
        self._tail = ""

    @property
    def is_over(self) -> bool:
        """The thoughts must end now."""
        return self._inside and (self._ended or 0 <= self._budget <= self._count)

    def add(self, text: str) -> None:
        """One more token; ``text`` is what it made complete, perhaps nothing."""
        self._tail += text
        if self._inside:
            self._count += 1
            self._inside = not any(self._passed(tag) for tag in (END, CALL))
        elif self._passed(START):
            self._inside, self._count, self._ended = True, 0, False
        self._tail = self._tail[-_TAIL:]

    def end(self) -> None:
        """End the thoughts that are going on; without any nothing happens."""
        self._ended = self._inside

    def _passed(self, tag: str) -> bool:
        _, found, behind = self._tail.partition(tag)
        if found:
            self._tail = behind
        return bool(found)
