"""One tool call, read while it is generated: Qwen3.5's XML form and the JSON form of Hermes-style templates.

A reader is fed the text behind the call's opening. Arguments come out as pieces of one JSON object whose "{" is not
among them (it belongs to the announcement of the call). Readers forgive what models get wrong: doubled, missing or
glued tags cost at most the damaged parameter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Protocol

from pyjet.chat.json_stream import JsonStream, escape, repair_object
from pyjet.chat.parameters import ValueWriter, writer_for
from pyjet.chat.pattern import END, NAME, SPACE, WHITESPACE, Pattern, first_match, match
from pyjet.chat.schema_types import ALL_TYPES

ParameterTypes = Mapping[str, frozenset[str]]


class CallReader(Protocol):
    """`name` is None until it is known; `done`: the call is complete."""

    name: str | None
    done: bool

    def feed(self, text: str, pos: int, final: bool) -> int:
        """Read from `pos`; returns where reading stopped. Text from there on is given again with what follows it."""

    def take(self) -> str:
        """Argument text that became certain since the last call."""

    def close(self) -> str:
        """Text that completes the arguments of a call the model left open."""

    def cut(self) -> str:
        """Text that is certain when generation was cut inside the call; the arguments stay unclosed."""


class QwenXmlCall:
    """`<parameter=NAME>` blocks up to `</function>`.

    A parameter's text ends at a line that is exactly `</parameter>`; also at a `</parameter>` without those line
    breaks when a tag follows that can follow, and at `</function></tool_call>` that ends the answer or leads to the
    next call. Any other tag is text of the value.
    """

    _BODY: tuple[Pattern, ...] = (("<parameter=", NAME, ">"), ("</function>",), ("</parameter>",))
    # a call that ends without its own end tag; the tag itself is left to the caller
    _OUTSIDE: tuple[Pattern, ...] = (("</tool_call>",), ("<tool_call>",), ("<function=",))
    _FOLLOWERS = frozenset({"<parameter=", "</function>", "</parameter>", "</tool_call>"})
    _CLOSERS: tuple[Pattern, ...] = (
        ("\n</parameter>\n",),
        ("\n</parameter>", SPACE, _FOLLOWERS),
        ("\n</parameter>", SPACE, END),
        ("</parameter>", SPACE, _FOLLOWERS),
        ("</parameter>", SPACE, END),
        ("\n</function>", SPACE, "</tool_call>", SPACE, END),
        ("\n</function>", SPACE, "</tool_call>", SPACE, "<tool_call>"),
    )
    _FIRST_FUNCTION_CLOSER = 5
    _CANDIDATE = re.compile(r"\n?</|\n<?\Z|<\Z")
    _CLOSING_TAGS = ("\n</parameter>", "</parameter>", "\n</function>")

    def __init__(self, name: str, types: ParameterTypes) -> None:
        self.name: str | None = name
        self.done = False
        self._types = types
        self._writer: ValueWriter | None = None
        self._at_value_start = False
        self._count = 0
        self._out: list[str] = []

    def feed(self, text: str, pos: int, final: bool) -> int:
        while pos < len(text) and not self.done:
            after = self._body(text, pos, final) if self._writer is None else self._value(text, pos, final)
            if after is None:
                break
            pos = after
        return pos

    def take(self) -> str:
        if self._writer is not None:
            self._out.append(self._writer.take())
        text = "".join(self._out)
        self._out.clear()
        return text

    def close(self) -> str:
        if not self.done:
            self._end_value()
            self._end_call()
        return self.take()

    def cut(self) -> str:
        text = self.take()
        return text if self._writer is None else text + self._writer.cut()

    def _body(self, text: str, pos: int, final: bool) -> int | None:
        """Between parameters: tags count, any other text is skipped. None: more text must come first."""
        if text[pos] in WHITESPACE:
            return pos + 1
        index, found = first_match(self._BODY, text, pos, final)
        if index == 0:
            self._begin_value(found.name)
        elif index == 1:
            self._end_call()
        if index >= 0:
            return found.end
        outside, other = first_match(self._OUTSIDE, text, pos, final)
        if outside >= 0:
            self._end_call()
            return pos
        if "partial" in (found.state, other.state):
            return None
        tag = text.find("<", pos + 1)
        return len(text) if tag < 0 else tag

    def _value(self, text: str, pos: int, final: bool) -> int | None:
        """Inside a parameter. None: more text must come first."""
        if self._at_value_start:
            self._at_value_start = False
            if text[pos] == "\n":
                return pos + 1
        assert self._writer is not None
        candidate = self._CANDIDATE.search(text, pos)
        if candidate is None:
            self._writer.add(text[pos:])
            return len(text)
        if candidate.start() > pos:
            self._writer.add(text[pos:candidate.start()])
            return candidate.start()
        index, found = first_match(self._CLOSERS, text, pos, final)
        if found.state == "partial":
            return None
        if index >= 0:
            self._end_value()
            return pos + 1 if index >= self._FIRST_FUNCTION_CLOSER else text.index(">", pos) + 1
        if final and any(tag.startswith(text[pos:]) for tag in self._CLOSING_TAGS):
            return len(text)  # the beginning of a tag that was cut off is not part of the value
        self._writer.add(text[pos])
        return pos + 1

    def _begin_value(self, name: str) -> None:
        self._out.append(("," if self._count else "") + f'"{escape(name)}":')
        self._count += 1
        self._writer = writer_for(self._types.get(name, ALL_TYPES))
        self._at_value_start = True

    def _end_value(self) -> None:
        if self._writer is not None:
            self._out += [self._writer.take(), self._writer.close()]
            self._writer = None

    def _end_call(self) -> None:
        self._out.append("}")
        self.done = True


class HermesJsonCall:
    """`{"name": …, "arguments": {…}}`, keys in any order; `parameters` counts as `arguments`.

    `unnamed` keeps the text of a call whose name has not come yet: without a name it is not a call at all. `names`:
    the only ones that count; None: any.
    """

    _END = "</tool_call>"

    def __init__(self, names: Collection[str] | None = None) -> None:
        self.name: str | None = None
        self.done = False
        self._names = names
        self.unnamed: list[str] = []
        self._state = self._open
        self._part = JsonStream()
        self._field = ""
        self._value_text: list[str] = []
        self._streams = False  # the arguments are an object: pieces pass through
        self._complete = False  # the arguments' closing brace is out
        self._out: list[str] = []

    @property
    def lost(self) -> bool:
        """What came is no JSON."""
        return self._state == self._skip

    def feed(self, text: str, pos: int, final: bool) -> int:
        begin = pos
        while pos < len(text) and not self.done:
            after = self._state(text, pos)
            if after < 0:
                break
            pos = after
        if self.name is None:
            self.unnamed.append(text[begin:pos])
        else:
            self.unnamed.clear()
        return pos

    def take(self) -> str:
        if self.name is None:
            return ""
        text = "".join(self._out)
        self._out.clear()
        return text

    def close(self) -> str:
        if not self.done:
            if self._state == self._value:
                self._end_value()
            self._end_call()
        return self.take()

    def cut(self) -> str:
        return self.take()

    # states: each returns the position behind what it read, -1 when more text must come first

    def _open(self, text: str, pos: int) -> int:
        self._state = self._key
        return pos + 1

    def _key(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in WHITESPACE or char == ",":
            return pos + 1
        if char == "}":
            self._end_call()
            return pos + 1
        if char not in "\"'":
            return self._give_up(pos)
        self._part = JsonStream()
        self._state = self._key_text
        return pos

    def _key_text(self, text: str, pos: int) -> int:
        pos = self._part.feed(text, pos)
        if self._part.done:
            self._field = json.loads(self._part.take())
            self._part = JsonStream()
            self._state = self._colon
        return pos

    def _colon(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in WHITESPACE:
            return pos + 1
        if char != ":":
            return self._give_up(pos)
        self._state = self._value
        return pos + 1

    def _value(self, text: str, pos: int) -> int:
        pos = self._part.feed(text, pos)
        self._pass_on(self._part.take())
        if self._part.broken:
            self._end_value()
            return self._give_up(pos)
        if self._part.done:
            self._end_value()
            self._state = self._key
        return pos

    def _skip(self, text: str, pos: int) -> int:
        """Nothing here can be understood; the end tag leads out."""
        found = match((self._END,), text, pos)
        if found.state == "full":
            self._end_call()
            return pos
        if found.state == "partial":
            return -1
        tag = text.find("<", pos + 1)
        return len(text) if tag < 0 else tag

    def _give_up(self, pos: int) -> int:
        self._state = self._skip
        return pos

    def _is_arguments(self) -> bool:
        return self._field in ("arguments", "parameters") and not self._complete

    def _pass_on(self, text: str) -> None:
        if not text:
            return
        if self._is_arguments():
            if self._streams:
                self._out.append(text)
                return
            if not self._value_text and text.startswith("{"):
                self._streams = True
                self._out.append(text[1:])
                return
        self._value_text.append(text)

    def _end_value(self) -> None:
        self._pass_on(self._part.close())
        if self._is_arguments():
            self._end_arguments("".join(self._value_text))
        elif self._field == "name" and self.name is None:
            name = json.loads("".join(self._value_text))
            is_name = isinstance(name, str) and name and (self._names is None or name in self._names)
            self.name = name if is_name else None
        self._value_text = []
        self._part = JsonStream()

    def _end_arguments(self, text: str) -> None:
        """Arguments given as JSON inside a string are taken for what they mean."""
        if not self._streams:
            value = json.loads(text)
            inner = repair_object(value) if isinstance(value, str) else {}
            self._out.append(json.dumps(inner, ensure_ascii=False, separators=(",", ":"))[1:])
        self._complete = True

    def _end_call(self) -> None:
        if not self._complete:
            self._out.append("}")
            self._complete = True
        self.done = True
