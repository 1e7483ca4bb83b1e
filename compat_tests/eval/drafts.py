"""Are answers the same with drafts? Compared is all that a client gets to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from compat_tests.eval.chats import Chat, calls_of

SHORT_MATCHES = ("--spec-ngram-simple-size-n", "3")


def drafting_options(types: str) -> list[str]:
    """Options of a server that drafts in every step and looks up short matches too, so that many drafts are wrong."""
    return ["--spec-type", types, "--spec-fixed", *SHORT_MATCHES]


def content_of(body: dict[str, Any]) -> tuple[Any, ...]:
    """Text, reasoning, calls and end of an answer; ids of calls are random."""
    if "choices" not in body:
        return (body.get("error"),)
    choice = body["choices"][0]
    message = choice["message"]
    calls = calls_of(message)
    return (message.get("content"), message.get("reasoning_content"), calls, choice["finish_reason"])


def differing(chats: Sequence[Chat], plain: Sequence[dict[str, Any]], drafted: Sequence[dict[str, Any]]) -> list[str]:
    """Ids of the chats whose two answers differ. Failures never count as the same."""
    return [
        chat.id
        for chat, without, with_drafts in zip(chats, plain, drafted, strict=True)
        if "error" in without or "error" in with_drafts or content_of(without) != content_of(with_drafts)
    ]


def draft_counts(bodies: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Drafted tokens that were verified, and those that were right."""
    timings = [body.get("timings", {}) for body in bodies]
    return sum(t.get("draft_n", 0) for t in timings), sum(t.get("draft_n_accepted", 0) for t in timings)


def report_drafts(chats: Sequence[Chat], plain: Sequence[dict[str, Any]], drafted: Sequence[dict[str, Any]]) -> bool:
    """Say how the two runs compare; whether drafts were used, right ones and wrong ones, and changed nothing."""
    wrong = differing(chats, plain, drafted)
    n_drafted, n_right = draft_counts(drafted)
    click.echo(f"with drafts: {len(chats) - len(wrong)} of {len(chats)} answers are the same; "
               f"{n_right} of {n_drafted} drafted tokens were right")  # fmt: skip
    for chat_id in wrong[:10]:
        click.echo(f"differs: {chat_id}")
    if not 0 < n_right < n_drafted:
        click.echo("the comparison says little: there must be right drafts and wrong ones")
        return False
    return not wrong
