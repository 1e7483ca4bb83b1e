"""Writers that turn the raw text of one XML parameter into JSON, as it arrives.

Each takes text with add(), gives JSON pieces with take(), and ends with close() (the parameter is complete) or
with cut() (generation stopped inside it: the value as far as it goes, unclosed).
"""

from __future__ import annotations

import json
from typing import Protocol

from pyjet.chat.json_stream import JsonStream, escape, scalar_json
from pyjet.chat.pattern import WHITESPACE
from pyjet.chat.schema_types import STRING_ONLY, type_of

# no number that means anything is longer; a longer text is not worth holding back
_MAX_SCALAR = 64
_STARTS = {"{": "object", "[": "array", "t": "boolean", "f": "boolean", "T": "boolean", "F": "boolean",
           "n": "null", "N": "null", "-": "number"} | dict.fromkeys("0123456789", "number")


class ValueWriter(Protocol):
    def add(self, text: str) -> None: ...

    def take(self) -> str: ...

    def close(self) -> str: ...

    def cut(self) -> str: ...


def writer_for(types: frozenset[str]) -> ValueWriter:
    """The writer for a parameter that may have these JSON types."""
    if types == STRING_ONLY:
        return StringWriter()
    return EitherWriter(types) if "string" in types else JsonWriter(types)


class StringWriter:
    """A string: every character is passed on at once, escaped."""

    def __init__(self) -> None:
        self._out: list[str] = ['"']

    def add(self, text: str) -> None:
        self._out.append(escape(text))

    def take(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text

    def close(self) -> str:
        return self.take() + '"'

    def cut(self) -> str:
        return self.take()


class JsonWriter:
    """A value that is not a string: containers stream, scalars are held until they end.

    Text that is no JSON becomes a string all the same: the client's own check can then tell the model what is wrong.
    """

    def __init__(self, types: frozenset[str]) -> None:
        self._types = types
        self._scalar: list[str] = []
        self._container: JsonStream | None = None

    def add(self, text: str) -> None:
        if self._container is None and not self._scalar:
            text = text.lstrip(WHITESPACE)
            if text[:1] in ("{", "["):
                self._container = JsonStream()
        if self._container is not None:
            self._container.feed(text)
        elif text:
            self._scalar.append(text)

    def take(self) -> str:
        return self._container.take() if self._container else ""

    def close(self) -> str:
        if self._container is not None:
            return self._container.close()
        text = "".join(self._scalar).strip(WHITESPACE)
        value = scalar_json(text)
        if value is not None:
            return value
        if not text and "null" in self._types:
            return "null"
        return _quoted_json(text) or json.dumps(text, ensure_ascii=False)

    def cut(self) -> str:
        return self.take() + (scalar_json("".join(self._scalar).strip(WHITESPACE)) or "")


def _quoted_json(text: str) -> str | None:
    """The text itself when it is a complete JSON string."""
    if not text.startswith('"'):
        return None
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        return None


class EitherWriter:
    """A value that may be a string or something else.

    The first character usually tells; a text that could be JSON of an allowed type is held until the parameter ends.
    """

    def __init__(self, types: frozenset[str]) -> None:
        self._types = types | {"number", "integer"} if types & {"number", "integer"} else types
        self._held: list[str] = []
        self._held_chars = 0
        self._kind: str | None = None  # the JSON type that the first character announced
        self._string: StringWriter | None = None

    def add(self, text: str) -> None:
        if self._string is not None:
            self._string.add(text)
            return
        self._held.append(text)
        self._held_chars += len(text)
        if self._kind is None:
            start = text.lstrip(WHITESPACE)[:1]
            if start:
                self._kind = _STARTS.get(start, "string")
        if self._kind is not None and not self._may_be_json():
            self._become_string()

    def _may_be_json(self) -> bool:
        if self._kind in ("object", "array"):
            return self._kind in self._types
        return self._kind != "string" and self._kind in self._types and self._held_chars <= _MAX_SCALAR

    def _become_string(self) -> None:
        self._string = StringWriter()
        for text in self._held:
            self._string.add(text)
        self._held.clear()

    def take(self) -> str:
        return self._string.take() if self._string is not None else ""

    def close(self) -> str:
        if self._string is None:
            value = self._json()
            if value is not None:
                return value
            self._become_string()
        assert self._string is not None
        return self._string.close()

    def cut(self) -> str:
        return self.take() if self._string is not None else self._json() or ""

    def _json(self) -> str | None:
        text = "".join(self._held).strip(WHITESPACE)
        if self._kind not in ("object", "array"):
            text = scalar_json(text) or ""
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
        if type_of(value) not in self._types:
            return None
        if not isinstance(value, dict | list):
            return text
        stream = JsonStream()  # compact, numbers as the model wrote them
        stream.feed(text)
        return None if stream.broken else stream.take() + stream.close()


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
