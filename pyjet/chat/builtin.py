"""Chat templates that exist by name, and the ones among them that stand in for a model's own with `--no-jinja`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import jinja2

from pyjet.chat import sandbox
from pyjet.chat.format_marks import guess_format
from pyjet.chat.stateful_formats import STATEFUL_FORMATS
from pyjet.chat.turn_formats import TURN_FORMATS

BUILTIN_TEMPLATES: Mapping[str, str] = {
    **{name: turns.source for name, turns in TURN_FORMATS.items()},
    **STATEFUL_FORMATS,
}
"""Jinja sources by llama-server's names."""

_NAMES = {source: name for name, source in BUILTIN_TEMPLATES.items()}


def builtin_template(name: str) -> str | None:
    """Jinja source of a template that has a name (`chatml`, `llama3`, ...); None for any other text."""
    return BUILTIN_TEMPLATES.get(name)


def resolve_template(text: str, *, jinja: bool = True) -> str:
    """Source for a `--chat-template` value: a built-in name or, with `jinja`, the source itself.

    Raises ValueError for a source that no built-in format fits without `jinja`.
    """
    known = builtin_template(text)
    if known is not None:
        return known
    if not jinja and plain_format(text) is None:
        raise ValueError("the supplied chat template is not supported without jinja: "
                         f"use --jinja or one of {', '.join(sorted(BUILTIN_TEMPLATES))}")
    return text


def plain_format(source: str) -> str | None:
    """The built-in format that a template source is, or whose marks it shows; None when it is some other format."""
    return _NAMES.get(source) or guess_format(source)


def render_plain(format_name: str, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
    """Prompt of a built-in format; contents are plain strings, and no special tokens are looked up."""
    return sandbox.run(
        _compiled(format_name), {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
    )


@cache
def _compiled(format_name: str) -> jinja2.Template:
    return sandbox.make_environment().from_string(BUILTIN_TEMPLATES[format_name])
