"""Grammars of tool calls in the form that a model was trained on: only these tools, with arguments of their schemas."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pyjet.chat.schema_types import STRING_ONLY, parameter_types
from pyjet.chat.types import CallFormat
from pyjet.grammar.description import GrammarError
from pyjet.grammar.json_schema import Warn, json_rule

log = logging.getLogger(__name__)
MAX_COUNTED = 60  # parameters of a function that are counted: the parser has 64 bits for that
# The text of a parameter runs to the line that closes it.
_CLOSE = "\n</parameter>\n"
_TEXT = f"text[suffix={json.dumps(_CLOSE)}]: /(?s:.*)/"


def call_rules(tools: Iterable[Mapping[str, Any]], form: CallFormat, *, parallel: bool, bare: bool) -> str:
    """Lark rules of which ``calls`` is one call, or with ``parallel`` several, and nothing behind them.

    ``bare``: the XML form may leave out the tag around it. What a schema has that cannot be enforced is logged.
    """
    functions = [tool["function"] for tool in tools]
    return _call_rules(json.dumps(functions), form, parallel, bare)


@lru_cache(maxsize=64)  # agents send the same tools with every turn
def _call_rules(functions: str, form: CallFormat, parallel: bool, bare: bool) -> str:
    known = {function["name"]: function for function in json.loads(functions)}
    lines = ['calls: call ("\\n" call)*' if parallel else "calls: call"]
    write = _xml_function if form == "qwen_xml" else _json_function
    lines.append("body: " + " | ".join(f"f{i}" for i in range(len(known))))
    for i, function in enumerate(known.values()):
        lines += write(f"f{i}", function)
    if form == "qwen_xml":
        lines += ['call: "<tool_call>\\n" body "\\n</tool_call>"' + (" | body" if bare else ""), _TEXT]
    else:
        lines.append('call: "<tool_call>\\n" body "\\n</tool_call>"')
    return "\n".join(lines) + "\n"


def _json_function(rule: str, function: Mapping[str, Any]) -> list[str]:
    arguments = rebased(_parameters(function), "#/properties/arguments")
    schema = {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    return [f"{rule}: {_json(schema, function['name'])}"]


def _xml_function(rule: str, function: Mapping[str, Any]) -> list[str]:
    opening = json.dumps(f"<function={function['name']}>\n")
    parameters = _parameters(function)
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        properties = {}
    required = parameters.get("required")
    needed = [name for name in properties if isinstance(required, list) and name in required]
    names = needed + [name for name in properties if name not in needed]
    lines = [
        f"{rule}_{i}: {json.dumps(f'<parameter={name}>' + chr(10))} {_xml_value(name, properties[name], function)}"
        for i, name in enumerate(names)
    ]
    others = [f"{rule}_any"] if _takes_others(parameters) else []
    if others:
        lines.append(f'{rule}_any: "<parameter=" /[^<>\\n]{{1,64}}/ ">\\n" text')
    if not 0 < len(names) <= MAX_COUNTED:
        every = " | ".join([*(f"{rule}_{i}" for i in range(len(names))), *others])
        return [f'{rule}: {opening} {f"({every})* " if every else ""}"</function>"', *lines]
    return [f'{rule}: {opening} {rule}_p::0 "</function>"', *_each_once(rule, len(names), len(needed), others), *lines]


def _each_once(rule: str, n: int, n_needed: int, others: list[str]) -> list[str]:
    """Parameters in any order, each once, the first ``n_needed`` of them for certain. Bits say which were there."""
    end = f'{rule}_p::_: ""' + (f" %if is_ones([0:{n_needed}])" if n_needed else "")
    more = [f"  | {rule}_{i} {rule}_p::set_bit({i}) %if bit_clear({i})" for i in range(n)]
    return [end, *more, *(f"  | {name} {rule}_p::_" for name in others)]


def _xml_value(name: str, schema: Any, function: Mapping[str, Any]) -> str:
    """A value and what closes it: text as it is where a string is allowed, otherwise JSON."""
    types = parameter_types(function)[name]
    close = json.dumps(_CLOSE)
    if types == STRING_ONLY and isinstance(schema, dict):
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values and all(_is_line_text(value) for value in values):
            return "(" + " | ".join(json.dumps(value) for value in values) + f") {close}"
    if "string" in types:
        return "text"
    root = rebased(_parameters(function), "#/$defs/root")
    alone = {**rebased(schema, "#/$defs/root"), "$defs": {"root": root}} if '"$ref"' in json.dumps(schema) else schema
    return _json(alone, f"{function['name']}, parameter {name}") + " " + close


def _is_line_text(value: Any) -> bool:
    return isinstance(value, str) and _CLOSE not in value + "\n"


def _takes_others(parameters: Mapping[str, Any]) -> bool:
    """Whether a function may get parameters that its schema does not list by name."""
    others = parameters.get("additionalProperties")
    combines = any(key in parameters for key in ("anyOf", "oneOf", "allOf", "$ref", "patternProperties"))
    return combines or others is True or isinstance(others, dict)


def _parameters(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a function's arguments: always an object, without parameters where it names none."""
    schema = function.get("parameters")
    if not isinstance(schema, dict):
        schema = {}
    if not schema.get("properties") and "additionalProperties" not in schema and not _takes_others(schema):
        schema = {**schema, "additionalProperties": False}
    return {"type": "object", **schema}


def rebased(schema: Any, base: str) -> Any:
    """The schema with its references ("#/...") pointing below ``base``, where its root will be."""
    if isinstance(schema, list):
        return [rebased(item, base) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: base + value[1:]
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else rebased(value, base)
        for key, value in schema.items()
    }


def _json(schema: Any, name: str) -> str:
    warn: Warn = lambda text: log.warning("the schema of tool %s: %s", name, text)  # noqa: E731
    try:
        return json_rule(schema, "tolerant", warn)
    except GrammarError as error:
        warn(f"{error}; any value is allowed")
        return json_rule({}, "tolerant")
