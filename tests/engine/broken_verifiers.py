"""Verifiers with a fault, for tests that must notice it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyjet.engine.chosen import Chosen, ChosenTokens
from pyjet.engine.sequence import Sequence

Faulty = Callable[[ChosenTokens, Sequence, int, Chosen], bool]


def accept_wrong_drafts(monkeypatch: pytest.MonkeyPatch, is_taken: Faulty) -> None:
    """Where ``is_taken`` says so of a wrong draft, and of the token that is right, the draft passes for the token."""
    choose = ChosenTokens._choose

    def choose_badly(self: ChosenTokens, sequence: Sequence, i: int) -> Chosen:
        chosen = choose(self, sequence, i)
        if i >= len(sequence.verifying) or chosen.token == sequence.verifying[i]:
            return chosen
        return chosen._replace(token=sequence.verifying[i]) if is_taken(self, sequence, i, chosen) else chosen

    monkeypatch.setattr(ChosenTokens, "_choose", choose_badly)
    monkeypatch.setattr(ChosenTokens, "by_device", lambda *_: None)  # one by one


def accept_one_wrong_draft(monkeypatch: pytest.MonkeyPatch, nth: int = 20) -> None:
    """The ``nth`` wrong one, and no other."""
    n_wrong = 0

    def is_taken(*_: object) -> bool:
        nonlocal n_wrong
        n_wrong += 1
        return n_wrong == nth

    accept_wrong_drafts(monkeypatch, is_taken)


def lose_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens are right, but the state of the last right draft's row is never applied."""
    advance, take = Sequence.advance_decoding, Sequence.take_drafts

    def advance_badly(self: Sequence, n_right: int) -> None:
        advance(self, n_right)
        self.n_pending = max(0, n_right - 1)

    def take_badly(self: Sequence, tokens: list[int], time: float) -> None:
        take(self, tokens, time)
        self.n_pending = max(0, self.n_pending - 1)

    monkeypatch.setattr(Sequence, "advance_decoding", advance_badly)
    monkeypatch.setattr(Sequence, "take_drafts", take_badly)
