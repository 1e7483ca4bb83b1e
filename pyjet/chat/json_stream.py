"""Incremental, forgiving JSON: a model's text in, pieces of valid compact JSON out.

Whatever comes in, the pieces given out so far plus close() form one valid JSON value. Separators and keys are held
until the value behind them begins, numbers and words until they end; strings pass through as they come.
Each character is looked at a bounded number of times.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SPACE = " \t\n\r\f\v"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SCALAR_END = re.compile(r"[,:\[\]{}\"'\s]")
_STRING_STOP = {'"': re.compile(r'["\\\x00-\x1f]'), "'": re.compile(r"['\"\\\x00-\x1f]")}
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_MAX_DEPTH = 100


def escape(text: str) -> str:
    """The inside of a JSON string with this text; characters outside ASCII stay as they are."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def scalar_json(text: str) -> str | None:
    """JSON for a bare number, true, false or null (Python's spellings too); None for anything else."""
    if text in _WORDS:
        return _WORDS[text]
    return text if _NUMBER.fullmatch(text) else None


class JsonStream:
    """Reads one JSON value. `done`: it is complete. `broken`: nothing after this point made sense."""

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._out: list[str] = []
        self._state = self._value
        self._stack: list[str] = []  # closers of the open containers
        self._separator = ""  # "," and a key, given out when the value begins
        self._after_first = [False]  # per open container: a value was given out
        self._scalar: list[str] = []
        self._quote = '"'
        self._key: list[str] | None = None  # text of the key being read
        self._escape = ""  # an escape sequence that is not complete yet
        self._high = ""  # a high surrogate waiting for its pair
        self._started = False

    def feed(self, text: str, pos: int = 0) -> int:
        """Read `text` from `pos` until it ends or the value is done or broken; returns where reading stopped."""
        while pos < len(text) and not self.done and not self.broken:
            pos = self._state(text, pos)
        return pos

    def take(self) -> str:
        """The JSON text that became certain since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def close(self) -> str:
        """Text that completes the value wherever it stands: an open string and containers close, a bare key goes."""
        if self.done:
            return self.take()
        if self._state == self._string and self._key is None:
            self._end_string()
        elif self._scalar:
            self._end_scalar()
        if not self._started:
            self._emit("null")
        self._out.extend(reversed(self._stack))
        self._stack.clear()
        self.done = True
        return self.take()

    def _emit(self, text: str) -> None:
        self._started = True
        self._out.append(text)

    # states: each consumes at least one character or changes the state

    def _value(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in _SPACE:
            return pos + 1
        if char in "{[":
            return self._open(char, pos)
        if char == "]" and self._stack and self._stack[-1] == "]":
            return self._close_container(pos)
        if char in "\"'":
            self._begin_value()
            self._quote = char
            self._emit('"')
            self._state = self._string
            return pos + 1
        if char in ",:}]":
            self.broken = True
            return pos
        self._state = self._bare
        return pos

    def _open(self, char: str, pos: int) -> int:
        if len(self._stack) >= _MAX_DEPTH:
            self.broken = True
            return pos
        self._begin_value()
        self._emit(char)
        self._stack.append("}" if char == "{" else "]")
        self._after_first.append(False)
        self._state = self._key_start if char == "{" else self._value
        return pos + 1

    def _begin_value(self) -> None:
        if self._after_first[-1] and not self._separator:
            self._separator = ","
        if self._separator:
            self._emit(self._separator)
        self._separator = ""
        self._after_first[-1] = True

    def _end_value(self) -> None:
        if self._stack:
            self._state = self._after_value
        else:
            self.done = True

    def _close_container(self, pos: int) -> int:
        self._separator = ""
        self._emit(self._stack.pop())
        self._after_first.pop()
        self._end_value()
        return pos + 1

    def _after_value(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in _SPACE:
            return pos + 1
        if char == ",":
            self._state = self._key_start if self._stack[-1] == "}" else self._value
            return pos + 1
        if char == self._stack[-1]:
            return self._close_container(pos)
        self.broken = True
        return pos

    def _key_start(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in _SPACE:
            return pos + 1
        if char == "}":
            return self._close_container(pos)
        if char not in "\"'":
            self.broken = True
            return pos
        self._quote = char
        self._key = []
        self._state = self._string
        return pos + 1

    def _colon(self, text: str, pos: int) -> int:
        char = text[pos]
        if char in _SPACE:
            return pos + 1
        if char != ":":
            self.broken = True
            return pos
        self._state = self._value
        return pos + 1

    def _bare(self, text: str, pos: int) -> int:
        match = _SCALAR_END.search(text, pos)
        end = match.start() if match else len(text)
        self._scalar.append(text[pos:end])
        if match:
            self._end_scalar()
        return end

    def _end_scalar(self) -> None:
        word = "".join(self._scalar)
        self._scalar = []
        value = scalar_json(word)
        self._begin_value()
        self._emit(json.dumps(word, ensure_ascii=False) if value is None else value)
        self._end_value()

    # strings

    def _string(self, text: str, pos: int) -> int:
        if self._escape:
            return self._continue_escape(text, pos)
        match = _STRING_STOP[self._quote].search(text, pos)
        end = match.start() if match else len(text)
        if end > pos:
            self._add(text[pos:end])
        if match is None:
            return end
        char = text[end]
        if char == "\\":
            self._escape = "\\"
        elif char == self._quote:
            self._end_string()
        else:
            self._add(escape(char))
        return end + 1

    def _add(self, text: str) -> None:
        if self._high:
            text = "\\ufffd" + text
            self._high = ""
        if self._key is not None:
            self._key.append(text)
        else:
            self._out.append(text)

    def _end_string(self) -> None:
        self._escape = ""
        if self._high:
            self._add("")
        if self._key is not None:
            comma = "," if self._after_first[-1] else ""
            self._separator = f'{comma}"{"".join(self._key)}":'
            self._key = None
            self._state = self._colon
        else:
            self._out.append('"')
            self._end_value()

    def _continue_escape(self, text: str, pos: int) -> int:
        char = text[pos]
        if self._escape == "\\" and char != "u":
            self._escape = ""
            self._add(f"\\{char}" if char in '"\\/bfnrt' else "'" if char == "'" else "\\\\" + escape(char))
            return pos + 1
        self._escape += char
        if len(self._escape) < 3:  # "\u" so far
            return pos + 1
        if char not in "0123456789abcdefABCDEF":  # not an escape after all: a backslash and the text behind it
            said, self._escape = self._escape[:-1], ""
            self._add("\\" + said)
            return pos
        if len(self._escape) == 6:
            said, self._escape = self._escape, ""
            self._add_unit(said)
        return pos + 1

    def _add_unit(self, said: str) -> None:
        """A `\\uXXXX`; a surrogate without its other half becomes U+FFFD."""
        unit = int(said[2:], 16)
        if 0xDC00 <= unit < 0xE000:
            high, self._high = self._high, ""
            self._add(high + said if high else "\\ufffd")
            return
        if self._high:
            self._add("")
        if 0xD800 <= unit < 0xDC00:
            self._high = said
        else:
            self._add(said)


def repair_object(text: str) -> dict[str, Any]:
    """The JSON object that a damaged or unfinished text began; empty when there is none."""
    stream = JsonStream()
    stream.feed(text)
    try:
        value = json.loads(stream.take() + stream.close())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
