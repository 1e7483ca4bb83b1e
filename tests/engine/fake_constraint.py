"""Constraints in pure Python on the vocabulary of FakeNative. A token that they forbid raises."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from pyjet.grammar.description import Grammar
from pyjet.native.samples import mask_words

N_VOCAB = 48
END = 3  # the token that ends an answer


def fake_grammar(seed: int, begin: int, length: int) -> Grammar:
    """The first ``begin`` tokens are free, ``length`` tokens then follow the grammar, END comes behind them."""
    return Grammar(f"{seed} {begin} {length}")


@cache
def allowed_after(seed: int, answer: tuple[int, ...]) -> frozenset[int]:
    """A few tokens, sometimes a single one; never END."""
    rng = np.random.default_rng([seed, *answer])
    return frozenset(int(t) for t in rng.choice(np.arange(END + 1, N_VOCAB), rng.choice([1, 2, 9]), replace=False))


def words_of(tokens: frozenset[int]) -> np.ndarray:
    bits = np.zeros(mask_words(N_VOCAB) * 32, bool)
    bits[list(tokens)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


class FakeConstraint:
    def __init__(self, grammar: Grammar) -> None:
        self._seed, self._begin, self._length = (int(number) for number in grammar.lark.split())
        self._answer: tuple[int, ...] = ()
        self._is_over = False
        self.error = ""

    @property
    def is_active(self) -> bool:
        return len(self._answer) >= self._begin and not self._is_over

    @property
    def is_finished(self) -> bool:
        return self.is_active and len(self._answer) >= self._begin + self._length

    def allowed(self, behind: Sequence[int] = ()) -> frozenset[int]:
        answer = (*self._answer, *behind)
        return frozenset({END}) if len(answer) >= self._begin + self._length else allowed_after(self._seed, answer)

    def accept(self, token: int) -> None:
        if self.is_active and token not in self.allowed():
            raise AssertionError(f"token {token} is not among {sorted(self.allowed())}")
        self._is_over = self._is_over or token == END
        self._answer += (token,)

    def n_verifiable(self, drafts: Sequence[int]) -> int:
        n = next((i for i, token in enumerate(drafts) if token == END), len(drafts))
        if self.is_active:
            return next((i for i in range(n) if drafts[i] not in self.allowed(drafts[:i])), n)
        return n if self._is_over else min(n, max(0, self._begin - len(self._answer) - 1))

    def forced(self) -> list[int]:
        allowed = self.allowed() if self.is_active else frozenset()
        return list(allowed) if len(allowed) == 1 else []


class FakeConstraints:
    """``n_masks``: rows that were filled."""

    def __init__(self) -> None:
        self.n_masks = 0

    def constraint(self, grammar: Grammar) -> FakeConstraint:
        return FakeConstraint(grammar)

    def fill(self, parts: Sequence[tuple[FakeConstraint, int, Sequence[int]]], masks: np.ndarray) -> None:
        for constraint, row, drafts in parts:
            assert constraint.is_active
            for i in range(len(drafts) + 1):
                if i and drafts[i - 1] not in constraint.allowed(drafts[: i - 1]):
                    masks[row + i :  row + len(drafts) + 1] = 0xFFFFFFFF  # what nobody may look at
                    break
                masks[row + i] = words_of(constraint.allowed(drafts[:i]))
                self.n_masks += 1
