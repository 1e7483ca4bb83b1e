"""JSON schemas as llguidance compiles them, and what is done about those that it cannot.

Semantics are those of JSON Schema 2020-12 with two exceptions that llama-server has too: an object with ``properties``
has no others unless ``additionalProperties`` says so, and white space between tokens is short.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from llguidance import LLMatcher

from pyjet.grammar.description import GrammarError

WHITE_SPACE = r" |\n{1,2}[ \t]{0,20}"
MAX_CHARS = 1 << 22  # of a schema as text
# strict: what cannot be enforced is an error. usual: it is left out with a warning. tolerant: so is what is wrong.
Care: TypeAlias = Literal["strict", "usual", "tolerant"]
Warn = Callable[[str], None]
TOO_DEEP = "the schema is nested too deeply"

_CHILDREN = ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames")
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_COMBINES = ("anyOf", "oneOf", "allOf", "$ref")


class SchemaError(GrammarError):
    """``path``: the place in the schema, "#/properties/a"; ``reason``: what is wrong there."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"JSON schema error at {path}: {reason}")
        self.path = path
        self.reason = reason


def json_rule(schema: Any, care: Care = "usual", warn: Warn = lambda _text: None) -> str:
    """The schema as an expression of a Lark grammar. Raises SchemaError."""
    return "%json " + json.dumps(usable_schema(schema, care, warn))


def usable_schema(schema: Any, care: Care, warn: Warn) -> dict[str, Any]:
    """A schema that llguidance compiles: the given one, or what is left of it. Raises SchemaError.

    ``warn`` gets a sentence for everything that was left out.
    """
    try:
        if len(json.dumps(schema)) > MAX_CHARS:
            raise SchemaError("#", f"a schema of more than {MAX_CHARS} characters")
        schema = closed(schema)
        if (message := _problem(schema, care)) is not None:
            schema = _repaired(schema, care, warn, message)
    except RecursionError:
        raise SchemaError("#", TOO_DEEP) from None
    if schema is True:
        schema = {}
    return {**schema, "x-guidance": _options(care)}


def closed(schema: Any) -> Any:
    """Objects with ``properties`` have no others, where the schema is silent about it."""
    return _map_schemas(schema, _close, is_part=False)


def _close(schema: dict[str, Any], is_part: bool) -> dict[str, Any]:
    is_open = any(key in schema for key in ("additionalProperties", "patternProperties", "unevaluatedProperties"))
    if is_part or is_open or not schema.get("properties") or any(key in schema for key in _COMBINES):
        return schema
    return {**schema, "additionalProperties": False}


def _map_schemas(schema: Any, change: Callable[[dict[str, Any], bool], dict[str, Any]], *, is_part: bool) -> Any:
    """Change all schemas inside one. ``is_part``: others describe the same value (allOf, or beside anyOf)."""
    if not isinstance(schema, dict):
        return schema
    together = is_part or any(key in schema for key in ("allOf", "$ref"))
    together = together or ("properties" in schema and any(key in schema for key in ("anyOf", "oneOf")))
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            value = {name: _map_schemas(child, change, is_part=False) for name, child in value.items()}
        elif key in _LISTS and isinstance(value, list):
            inside = together and key != "prefixItems"
            value = [_map_schemas(child, change, is_part=inside) for child in value]
        elif key in _CHILDREN:
            value = _map_schemas(value, change, is_part=False)
        result[key] = value
    return change(result, is_part)


def _options(care: Care) -> dict[str, Any]:
    return {"whitespace_pattern": WHITE_SPACE, "coerce_one_of": True, "lenient": care != "strict"}


def _problem(schema: Any, care: Care) -> str | None:
    """Why llguidance refuses a schema; None: it does not."""
    if not isinstance(schema, dict):
        return None if schema is True else "a schema must be an object, or true"
    try:
        grammar = LLMatcher.grammar_from_json_schema({**schema, "x-guidance": _options(care)})
        is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    except ValueError as error:
        is_error, messages = True, [str(error)]
    return _in_words(str(messages[0])) if is_error else None


def _in_words(message: str) -> str:
    """One line of llguidance's message; that of a regular expression shows it first, the reason comes last."""
    lines = [line.strip() for line in message.splitlines() if line.strip(" ^")]
    if "recursion limit" in message:
        return TOO_DEEP
    if lines and lines[0].startswith("regex parse error"):
        return f"the pattern {lines[1]!r} cannot be used: {lines[-1].removeprefix('error: ')}"
    return (lines[0] if lines else message).replace("Invalid type: ", "unrecognized type ")


def _repaired(schema: Any, care: Care, warn: Warn, message: str) -> Any:
    """Take out what cannot be used, place by place."""
    while True:
        path, reason, found = _culprit(schema, care, message)
        usable = None if care == "strict" else _without_pattern(found, care)
        if usable is not None:
            warn(f"{path}: {reason}; the pattern is not enforced")
        elif care == "tolerant":
            warn(f"{path}: {reason}; any value is allowed there")
            usable = {}
        else:
            raise SchemaError(path, reason)
        schema = _replaced(schema, path, usable)
        if (more := _problem(schema, care)) is None:
            return schema
        message = more


def _without_pattern(schema: Any, care: Care) -> dict[str, Any] | None:
    if not isinstance(schema, dict) or "pattern" not in schema:
        return None
    rest = {key: value for key, value in schema.items() if key != "pattern"}
    return rest if _problem(rest, care) is None else None


def _culprit(root: Any, care: Care, message: str) -> tuple[str, str, Any]:
    """(path, reason, schema) of the first schema that is wrong by itself while the ones in it are not."""
    shared = {key: root[key] for key in ("$defs", "definitions") if isinstance(root, dict) and key in root}
    path, found = "#", root
    while message != TOO_DEEP:
        for step, child in _children(found):
            alone = {**shared, **child} if isinstance(child, dict) else child
            if (reason := _problem(alone, care)) is not None:
                path, found, message = f"{path}/{step}", child, reason
                break
        else:
            break
    return path, message, found


def _children(schema: Any) -> Iterator[tuple[str, Any]]:
    """(place, schema) of the schemas directly inside one, definitions first; places are steps of a JSON pointer."""
    if not isinstance(schema, dict):
        return
    for key, value in sorted(schema.items(), key=lambda item: item[0] not in ("$defs", "definitions")):
        if key in _MAPS and isinstance(value, dict):
            yield from ((f"{key}/{_escaped(name)}", child) for name, child in value.items())
        elif key in _LISTS and isinstance(value, list):
            yield from ((f"{key}/{i}", child) for i, child in enumerate(value))
        elif key in _CHILDREN and not (key == "additionalProperties" and value is False):
            yield key, value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _replaced(schema: Any, path: str, value: Any) -> Any:
    """The schema with another one at a path."""
    if path == "#":
        return value
    step, *rest = (part.replace("~1", "/").replace("~0", "~") for part in path[2:].split("/"))
    below = "/".join(["#", *(_escaped(part) for part in rest)])
    if isinstance(schema, list):
        return [_replaced(item, below, value) if str(i) == step else item for i, item in enumerate(schema)]
    return {key: _replaced(item, below, value) if key == step else item for key, item in schema.items()}
