"""Greedy answers to two hundred prompts do not depend on drafts: every number of them, with and without lookups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pyjet.native.engine import NativeEngine
from tests.engine.broken_verifiers import accept_one_wrong_draft, lose_states
from tests.engine.many_prompts import (
    DRAFTS,
    SETTINGS,
    Answers,
    answers,
    check_a_fault_is_noticed,
    check_drafts,
    check_same,
)
from tests.engine.real_engine import build

N_TOKENS = 32


@pytest.fixture(scope="module")
def native() -> Iterator[NativeEngine]:
    with build(replace(SETTINGS, device="cuda")) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(native: NativeEngine) -> Answers:
    return answers(native, DRAFTS["0 without lookups"], N_TOKENS)


@pytest.mark.parametrize("name", DRAFTS)
def test_answers_are_those_without_drafts(native: NativeEngine, plain: Answers, name: str) -> None:
    got = answers(native, DRAFTS[name], N_TOKENS)
    check_same(got, plain)
    check_drafts(got, DRAFTS[name])


@pytest.mark.parametrize("fault", [accept_one_wrong_draft, lose_states])
def test_a_fault_would_be_noticed(
    native: NativeEngine, plain: Answers, monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None]
) -> None:
    fault(monkeypatch)
    check_a_fault_is_noticed(native, plain, N_TOKENS)
