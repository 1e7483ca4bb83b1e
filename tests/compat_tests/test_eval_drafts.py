"""Comparison of the evaluation's answers with and without drafts."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.eval.chats import Chat
from compat_tests.eval.drafts import differing, draft_counts, drafting_options, report_drafts
from pyjet.server.option_parser import parse
from pyjet.server.speculation import speculation_settings

CHATS = [Chat(name, "single", False, [], [], []) for name in ("a", "b")]


def answer(text: str = "hi", call_id: str = "1", arguments: str = "{}", **timings: int) -> dict[str, Any]:
    call = {"id": call_id, "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": text, "tool_calls": [call]}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}], "timings": timings}


def test_ids_of_calls_do_not_matter() -> None:
    assert differing(CHATS, [answer()] * 2, [answer(call_id="2"), answer(arguments="{ }")]) == []


@pytest.mark.parametrize("other", [answer("ho"), answer(arguments='{"x": 1}'), {"error": "refused"}])
def test_what_a_client_sees_does(other: dict[str, Any]) -> None:
    assert differing(CHATS, [answer()] * 2, [answer(), other]) == ["b"]
    assert differing(CHATS, [{"error": "refused"}] * 2, [{"error": "refused"}] * 2) == ["a", "b"]


def test_drafts_must_have_been_used() -> None:
    some = [answer(draft_n=4, draft_n_accepted=3), answer()]
    assert draft_counts(some) == (4, 3)
    plain = [answer(), answer()]
    assert report_drafts(CHATS, plain, some)
    assert not report_drafts(CHATS, plain, plain), "no drafts at all"
    assert not report_drafts(CHATS, plain, [answer(draft_n=4, draft_n_accepted=4), answer()]), "no wrong ones"
    assert not report_drafts(CHATS, [answer("ho"), answer()], some)


def test_the_drafting_server_always_drafts() -> None:
    settings = speculation_settings(parse(drafting_options("draft-mtp,ngram-simple"), {}).options)
    assert (settings.mtp, settings.lookup, settings.is_adaptive, settings.lookup_min_match) == (True, True, False, 3)
