"""JSON schemas: what of them is enforced, what is left out with a warning, what is refused, and where."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pyjet.grammar.description import Grammar
from pyjet.grammar.json_schema import SchemaError, json_rule, usable_schema
from tests.grammar.walk import accepts, walk

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mail": {"type": ["string", "null"]},
    },
    "required": ["name", "age"],
}


def lark(schema: Any) -> str:
    return f"start: {json_rule(schema)}"


def test_values_that_a_schema_allows() -> None:
    person = lark(PERSON)
    for value in ({"name": "Ä", "age": 7}, {"name": "", "age": 0, "mail": None}, {"name": "x", "age": 150}):
        assert accepts(person, json.dumps(value, ensure_ascii=False)), value
    assert accepts(person, '{"name":"a","age":1}') and accepts(person, '{\n  "name": "a",\n  "age": 1\n}')
    for value in ({}, {"name": "x"}, {"name": "x", "age": 151}, {"name": "x" * 21, "age": 1}, [], {"age": 1}):
        assert not accepts(person, json.dumps(value)), value


def test_objects_have_no_other_properties_unless_the_schema_says_so() -> None:
    other = '{"a": 1, "b": 2}'
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert not accepts(lark(schema), other)
    assert accepts(lark({**schema, "additionalProperties": True}), other)
    assert accepts(lark({"type": "object"}), other)
    parts = {"allOf": [schema, {"type": "object", "properties": {"b": {"type": "integer"}}}]}
    assert accepts(lark(parts), other), "parts of one object do not exclude each other"


def test_white_space_is_short() -> None:
    assert not accepts(lark({"type": "object"}), '{"a":   1}')
    assert not accepts(lark({"type": "object"}), "{" + "\n" * 5 + "}")


PATTERN = "the pattern '^(?!x).*$' cannot be used: look-around, including look-ahead and look-behind, is not supported"
WRONG = [
    ({"type": "hiccup"}, "#", "unrecognized type hiccup"),
    ({"properties": {"a": {"items": {"type": "x"}}}}, "#/properties/a/items", "unrecognized type x"),
    ({"properties": {"b/c~": {"type": "x"}}}, "#/properties/b~1c~0", "unrecognized type x"),
    ({"anyOf": [{"type": "integer"}, {"type": "x"}]}, "#/anyOf/1", "unrecognized type x"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "x"}}}, "#/$defs/a", "unrecognized type x"),
    ({"properties": {"a": {"$ref": "https://a.org/b"}}}, "#/properties/a", "Resource 'https://a.org/b'"),
    ({"properties": {"a": {"$ref": "#/definitions/b"}}}, "#", "Pointer '/definitions/b' does not exist"),
    ({"type": "string", "minLength": 5, "maxLength": 2}, "#", "Unsatisfiable schema"),
    ({"properties": []}, "#", "properties must be an object"),
    ([], "#", "a schema must be an object, or true"),
    ("x", "#", "a schema must be an object, or true"),
]


@pytest.mark.parametrize(("schema", "path", "reason"), WRONG)
def test_errors_name_the_place(schema: Any, path: str, reason: str) -> None:
    with pytest.raises(SchemaError) as error:
        usable_schema(schema, "usual", pytest.fail)
    if path != "#" or "$ref" not in json.dumps(schema):
        assert error.value.path == path
    assert error.value.reason.startswith(reason)
    assert str(error.value).startswith("JSON schema error at #")


@pytest.mark.parametrize(("schema", "path", "reason"), WRONG)
def test_a_tolerant_reader_leaves_out_what_is_wrong(schema: Any, path: str, reason: str) -> None:
    warnings: list[str] = []
    usable = usable_schema(schema, "tolerant", warnings.append)
    assert len(warnings) == 1 and reason in warnings[0]
    accepts("start: %json " + json.dumps(usable), "{}")


UNSUPPORTED = [
    ({"type": "string", "pattern": "^(?!x).*$"}, PATTERN),
    ({"type": "string", "format": "byte"}, "Unknown format: byte"),
    ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: ["uniqueItems"]'),
]


@pytest.mark.parametrize(("part", "reason"), UNSUPPORTED)
def test_what_cannot_be_enforced(part: dict[str, Any], reason: str) -> None:
    """It is left out, or with ``strict`` an error."""
    schema = {"type": "object", "properties": {"a": part}, "required": ["a"]}
    usable_schema(schema, "usual", lambda _text: None)
    with pytest.raises(SchemaError) as error:
        usable_schema(schema, "strict", pytest.fail)
    assert (error.value.path, error.value.reason) == ("#/properties/a", reason)


def test_what_is_left_of_a_schema_is_enforced() -> None:
    warnings: list[str] = []
    properties = {"a": {"type": "string", "pattern": "^(?!x).*$"}, "b": {"type": "string", "pattern": r"^\d{4}-\d{2}$"}}
    usable = usable_schema({"type": "object", "properties": properties}, "usual", warnings.append)
    assert warnings == [f"#/properties/a: {PATTERN}; the pattern is not enforced"]
    rule = "start: %json " + json.dumps(usable)
    assert accepts(rule, '{"a": "x", "b": "2024-05"}') and not accepts(rule, '{"b": "2024-5"}')
    assert not accepts(rule, '{"a": 1}')


def test_deep_schemas() -> None:
    deep: Any = {}
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaError, match="nested too deeply"):
        json_rule(deep)


# Schemas whose every keyword is enforced, and texts that random allowed tokens make of them.
LEAVES = st.one_of(
    st.sampled_from(
        [
            {"type": "null"}, {"type": "boolean"}, {"type": "integer", "minimum": -5, "maximum": 120},
            {"type": "number"}, {"type": "string", "maxLength": 8}, {"type": "string", "minLength": 2, "maxLength": 9},
            {"const": {"a": [1, None]}}, {"enum": ["x", "y z", 3, None]}, {"type": ["integer", "null"]},
            {"type": "string", "pattern": "^[a-c]+[0-9]{2}$"}, {"type": "string", "format": "date"},
            {"type": "string", "format": "uuid"}, {"type": "string", "format": "ipv4"},
            {"type": "integer", "multipleOf": 5}, {"type": "integer", "exclusiveMinimum": 3},
        ]
    )
)
NAMES = st.sampled_from(["a", "b", "ä b", 'q"'])


def objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(NAMES, children, min_size=1, max_size=3)
    return st.tuples(properties, st.sets(NAMES)).map(
        lambda both: {
            "type": "object", "properties": both[0], "required": sorted(both[1] & both[0].keys()),
            "additionalProperties": False,
        }
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        objects(children),
        st.builds(lambda items, n: {"type": "array", "items": items, "minItems": n, "maxItems": n + 2}, children,
                  st.integers(0, 2)),
        st.lists(children, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
        st.tuples(children, children).map(
            lambda two: {"type": "array", "prefixItems": list(two), "items": False, "minItems": 2}
        ),
        children.map(lambda child: {"$ref": "#/$defs/d", "$defs": {"d": child}}),
    ),
    max_leaves=6,
)


def has_nested_definitions(schema: Any) -> bool:
    """References are to the root's definitions."""
    inner = [value for key, value in schema.items() if key != "$defs"] if isinstance(schema, dict) else []
    return any('"$ref"' in json.dumps(value) for value in inner) or json.dumps(schema).count('"$defs"') > 1


@settings(max_examples=120, deadline=None)
@given(SCHEMAS, st.integers(0, 2**32))
def test_texts_validate(schema: Any, seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assume(not has_nested_definitions(schema))
    text = walk(Grammar(lark(schema)), Random(seed))
    assume(text is not None)
    assert text is not None
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))
