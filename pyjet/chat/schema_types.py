"""Which JSON types a tool parameter may take, read off its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALL_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
STRING_ONLY = frozenset({"string"})
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", list: "array",
          type(None): "null"}


def type_of(value: Any) -> str:
    """JSON Schema name of a parsed value's type."""
    return _NAMES[type(value)]


def parameter_types(function: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Types by parameter name of one tool's function; an unresolvable part of a schema allows everything."""
    root = function.get("parameters")
    if not isinstance(root, dict):
        return {}
    properties = root.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {name: _types(schema, root, 0) for name, schema in properties.items()}


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    if not isinstance(schema, dict) or depth > 32:
        return ALL_TYPES
    if isinstance(schema.get("$ref"), str):
        return _types(_resolve(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return frozenset({type_of(schema["const"])})
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return frozenset(type_of(value) for value in schema["enum"])
    types = _declared(schema)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            types &= frozenset().union(*(_types(child, root, depth + 1) for child in schema[key]))
    for child in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        types &= _types(child, root, depth + 1)
    if schema.get("nullable") is True:
        types |= {"null"}
    return types or ALL_TYPES


def _declared(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    types = frozenset(name for name in names if isinstance(name, str)) & ALL_TYPES
    if types:
        return types
    if any(key in schema for key in ("properties", "additionalProperties", "required")):
        return frozenset({"object"})
    if "items" in schema or "prefixItems" in schema:
        return frozenset({"array"})
    if any(key in schema for key in ("pattern", "minLength", "maxLength", "format")):
        return STRING_ONLY
    return ALL_TYPES


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """The target of a local `#/…` reference; None (anything) when there is none."""
    if not reference.startswith("#"):
        return None
    node: Any = root
    for part in reference[1:].strip("/").split("/") if reference not in ("#", "#/") else ():
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return node
