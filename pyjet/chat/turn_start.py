"""The control token with which a chat template begins each message, `<|im_start|>` for ChatML.

It marks in a prompt's tokens where messages start, also in prompts that came as text or as token ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyjet.chat.template import ChatTemplate, TemplateError

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer

_DIALOGUE = ("user", "assistant", "user")
# a system message first, because some templates add one of their own when there is none; others refuse it
_PROBES = (("system", *_DIALOGUE), _DIALOGUE)


def find_turn_start(template: ChatTemplate, tokenizer: Tokenizer) -> int | None:
    """The token that begins every message; None when no control token does."""
    for roles in _PROBES:
        leads = _leads(template, tokenizer, roles)
        if leads is not None and (token := _common(leads)) is not None:
            return token
    return None


def _leads(template: ChatTemplate, tokenizer: Tokenizer, roles: tuple[str, ...]) -> list[list[int]] | None:
    """For each message the control tokens between the content before it and its own; None when one is missing."""
    marks = [f"probe-{number}-mark" for number in range(len(roles))]
    messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks)]
    try:
        text = template.render(messages, add_generation_prompt=False)
    except TemplateError:
        return None
    leads = []
    for mark in marks:
        lead, found, text = text.partition(mark)
        if not found:
            return None
        leads.append(list(_control(tokenizer, lead)))
    return leads


def _control(tokenizer: Tokenizer, text: str) -> Iterator[int]:
    return (token for token in tokenizer.encode(text) if tokenizer.is_control(token))


def _common(leads: list[list[int]]) -> int | None:
    """The first token of the first lead that every later one has exactly once.

    The end of a message is in every later lead, too, but in the first one it comes after a start, if at all.
    """
    first, *later = leads
    return next((token for token in first if all(lead.count(token) == 1 for lead in later)), None)
