"""What an answer may look like, as the engine sees it: token by token, and masks of the tokens that may come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyjet.grammar.description import Grammar
from pyjet.native.samples import Masks


class Constraint(Protocol):
    """Of one answer: a pyjet.grammar.GrammarMatcher, or a fake in tests."""

    @property
    def is_active(self) -> bool:
        """The next token is constrained."""
        ...

    @property
    def is_finished(self) -> bool:
        """Only a token that ends the answer may come."""
        ...

    @property
    def error(self) -> str:
        """Why the answer cannot go on; empty when it can."""
        ...

    def accept(self, token: int) -> None:
        """A token became part of the answer. Steps wait for this: what it leads to can be found out when asked."""
        ...

    def n_verifiable(self, drafts: Sequence[int]) -> int:
        """How many of these may be verified in one step.

        The grammar allows them, and whether tokens are constrained stays the same behind them.
        """
        ...

    def forced(self) -> list[int]:
        """Tokens that have to come, as far as that is certain without the model."""
        ...


class Constraints(Protocol):
    """Makes constraints on any thread, and masks on the engine's."""

    def constraint(self, grammar: Grammar) -> Constraint:
        """Of a new answer. Raises GrammarError, or ModelError for a model without a usable tokenizer."""
        ...

    def fill(self, parts: Sequence[tuple[Constraint, int, Sequence[int]]], masks: Masks) -> None:
        """Masks of active constraints into uint32[rows, words].

        Of each (constraint, row, drafts): for its next token into that row, for the ones behind its drafts into the
        rows below, as far as it allows these.
        """
        ...
