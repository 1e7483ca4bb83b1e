"""The Jinja environment that runs chat templates.

A template comes out of a model file that nobody has reviewed, so it runs in Jinja's immutable sandbox: no access to
underscore attributes, no mutation of the messages, and limits on how much it may produce.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_RENDERED_CHARS = 64 << 20
MAX_RENDER_SECONDS = 20.0
_MAX_REPEAT = 1 << 20


class TemplateRaised(Exception):
    """A template called raise_exception()."""


class RenderLimit(Exception):
    """A template produced too much text or ran too long."""


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}` marks assistant text for training; when serving, only its body counts."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it this way)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Undefined(jinja2.Undefined):
    """A missing variable counts as an empty text in `+`, as llama-server's engine has it; templates rely on it."""

    def __add__(self, other: Any) -> Any:
        return other

    def __radd__(self, other: Any) -> Any:
        return other


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        # Jinja itself only fails when such a value is used further; a template has no reason to touch one
        raise SecurityError(f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe")

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        # Nearly all attributes in a long conversation are methods of strings and fields of `loop`; what Jinja looks at
        # besides the underscore concerns other types, and takes several times as long.
        if type(obj) is str or type(obj) is LoopContext:
            return not attr.startswith("_")
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise SecurityError("operator '**' is not available to chat templates")
        if _repeats(left, right) or _repeats(right, left):
            raise SecurityError("a chat template may not repeat a sequence that often")
        return super().call_binop(context, operator, left, right)


def _repeats(sequence: Any, count: Any) -> bool:
    return (isinstance(sequence, str | list | tuple) and isinstance(count, int)
            and len(sequence) * count > _MAX_REPEAT)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """JSON as the templates' authors tested it: no HTML escapes, key order kept, spaces after `,` and `:`.

    What filters such as `map` leave behind counts as a list, and a missing value as null.
    """
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys,
                      default=_json_form)


def _json_form(value: Any) -> Any:
    if isinstance(value, jinja2.Undefined):
        return None
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"an object of type {type(value).__name__} has no JSON form")


def _raise_exception(message: Any = "") -> NoReturn:
    raise TemplateRaised(str(message))


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def make_environment() -> jinja2.Environment:
    """A fresh environment with the functions and filters chat templates rely on."""
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, undefined=_Undefined,
                               extensions=[loopcontrols, _GenerationBlock])
    environment.filters["tojson"] = _tojson
    # nothing is escaped, so "safe" has nothing to mark; Jinja's own would make later "+" escape its operand
    environment.filters["safe"] = str
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def run(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    """Render within the limits. Raises RenderLimit, TemplateRaised and whatever the template itself provokes."""
    pieces: list[str] = []
    run_into(pieces, template, variables)
    return "".join(pieces)


def run_into(pieces: list[str], template: jinja2.Template, variables: Mapping[str, Any]) -> None:
    """The same, piece by piece: each is in the list before the template goes on behind it."""
    deadline = time.monotonic() + MAX_RENDER_SECONDS
    size = 0
    for piece in template.generate(**variables):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_RENDERED_CHARS:
            raise RenderLimit(f"the chat template produced more than {MAX_RENDERED_CHARS} characters")
        if time.monotonic() > deadline:
            raise RenderLimit(f"the chat template ran longer than {MAX_RENDER_SECONDS:g} seconds")
