"""Greedy answers to two hundred prompts do not depend on drafts: any number of them, from either source or both.

Each number of drafts answers all prompts, half of them with lookups and half without; the other halves are for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pyjet.native.engine import NativeEngine
from tests.engine.broken_verifiers import accept_one_wrong_draft, lose_states
from tests.engine.many_prompts import (
    ALL,
    DRAFTS,
    SETTINGS,
    Answers,
    answers,
    check_a_fault_is_noticed,
    check_drafts,
    check_same,
)
from tests.engine.real_engine import build

N_TOKENS = 12
ODD, EVEN = ALL[1::2], ALL[::2]  # chats, code


def which(name: str) -> range:
    """The prompts that are answered with these drafts."""
    if name == "adaptive":
        return ALL
    n, with_or_without, _ = name.split()
    return ODD if (with_or_without == "with") == (int(n) % 2 == 0) else EVEN


@pytest.fixture(scope="module")
def native() -> Iterator[NativeEngine]:
    with build(SETTINGS) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(native: NativeEngine) -> Answers:
    found = answers(native, DRAFTS["0 without lookups"], N_TOKENS)
    assert len({tuple(tokens) for tokens in found.tokens.values()}) > 100, "answers that say little"
    return found


@pytest.mark.parametrize("name", [name for name in DRAFTS if name != "0 without lookups"])
def test_answers_are_those_without_drafts(native: NativeEngine, plain: Answers, name: str) -> None:
    got = answers(native, DRAFTS[name], N_TOKENS, which(name))
    check_same(got, plain)
    check_drafts(got, DRAFTS[name])


@pytest.mark.parametrize("fault", [accept_one_wrong_draft, lose_states])
def test_a_fault_would_be_noticed(
    native: NativeEngine, plain: Answers, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    check_a_fault_is_noticed(native, plain, N_TOKENS)
