"""Reads GBNF, llama.cpp's notation of grammars, into a tree. Errors name line and column.

    rule ::= alternative | alternative     # "text" [a-z] [^"] . rule (group) and after these * + ? {2} {1,} {0,3}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from pyjet.grammar.description import GrammarError

MAX_CHARS = 1 << 18  # of a grammar
MAX_DEPTH = 100  # of groups inside groups
MAX_REPEAT = 100_000

_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_COUNTS = re.compile(r"\{[ \t]*(\d+)[ \t]*(?:(,)[ \t]*(\d*)[ \t]*)?\}")
_PLAIN = re.compile(r'[^"\\\r\n]+')
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "[": "[", "]": "]"}


@dataclass(frozen=True)
class Literal:
    text: str


@dataclass(frozen=True)
class CharClass:
    """One character of ``ranges`` (first and last one of each), or one that is in none of them."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool = False


@dataclass(frozen=True)
class RuleRef:
    name: str
    position: int


@dataclass(frozen=True)
class Repeat:
    node: Node
    least: int
    most: int | None


@dataclass(frozen=True)
class Sequence:
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    nodes: tuple[Node, ...]


Node: TypeAlias = "Literal | CharClass | RuleRef | Repeat | Sequence | Choice"


@dataclass(frozen=True)
class Rule:
    name: str
    position: int
    body: Node


def fail_at(text: str, position: int, reason: str) -> NoReturn:
    """Raise GrammarError that says where."""
    raise GrammarError(f"{place_of(text, position)}: {reason}")


def place_of(text: str, position: int) -> str:
    """In words, counted from 1."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


class GbnfReader:
    """Reads one grammar from its beginning."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def rules(self) -> dict[str, Rule]:
        """By name; the last of several with one name counts. Raises GrammarError."""
        if len(self._text) > MAX_CHARS:
            raise GrammarError(f"a grammar of {len(self._text)} characters is too long: {MAX_CHARS} are allowed")
        rules: dict[str, Rule] = {}
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            rule = self._rule()
            rules[rule.name] = rule
        return rules

    def _rule(self) -> Rule:
        position, name = self._at, self._name("the name of a rule")
        self._skip(_SPACE)
        self._expect("::=")
        self._skip(_SPACE_AND_LINES)
        body = self._choice(is_nested=False)
        end = self._at
        self._skip(_SPACE_AND_LINES)
        if end < len(self._text) and self._text[end] not in "\r\n":
            self._fail("expected the end of the rule, '|' or one more element", end)
        return Rule(name, position, body)

    def _choice(self, *, is_nested: bool) -> Node:
        alternatives = [self._sequence(is_nested=is_nested)]
        while self._comes("|"):
            self._at += 1
            self._skip(_SPACE_AND_LINES)
            alternatives.append(self._sequence(is_nested=is_nested))
        return alternatives[0] if len(alternatives) == 1 else Choice(tuple(alternatives))

    def _comes(self, mark: str) -> bool:
        """Whether this is next, in this line or a later one; then it is where reading goes on."""
        after = _SPACE_AND_LINES.match(self._text, self._at)
        end = after.end() if after else self._at
        if not self._text.startswith(mark, end):
            return False
        self._at = end
        return True

    def _sequence(self, *, is_nested: bool) -> Node:
        space = _SPACE_AND_LINES if is_nested else _SPACE
        nodes: list[Node] = []
        while (node := self._element()) is not None:
            nodes.append(self._repeated(node))
            self._skip(space)
        return nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes))

    def _element(self) -> Node | None:
        char = self._text[self._at : self._at + 1]
        if char == '"':
            return self._literal()
        if char == "[":
            return self._char_class()
        if char == "(":
            return self._group()
        if char == ".":
            self._at += 1
            return CharClass((), is_negated=True)
        if char in ("<", "!"):
            self._fail("references to tokens are not supported; write the text of the token in quotes")
        if _NAME.match(self._text, self._at):
            position = self._at
            return RuleRef(self._name("a name"), position)
        if char in ("*", "+", "?", "{"):
            self._fail(f"'{char}' has nothing to repeat")
        return None

    def _repeated(self, node: Node) -> Node:
        while (char := self._text[self._at : self._at + 1]) in ("*", "+", "?", "{") and char:
            if char == "{":
                node = self._counted(node)
                continue
            self._at += 1
            node = Repeat(node, int(char == "+"), 1 if char == "?" else None)
        return node

    def _counted(self, node: Node) -> Node:
        found = _COUNTS.match(self._text, self._at)
        if found is None:
            self._fail("expected a number of repetitions: {2}, {2,} or {2,5}")
        least, comma, most = found.groups()
        if any(len(number) > 6 or int(number) > MAX_REPEAT for number in (least, most) if number):
            self._fail(f"more than {MAX_REPEAT} repetitions")
        if most and int(most) < int(least):
            self._fail(f"at least {least} and at most {most} repetitions")
        self._at = found.end()
        return Repeat(node, int(least), (int(most) if most else None) if comma else int(least))

    def _group(self) -> Node:
        opened = self._at
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} groups inside each other")
        self._at += 1
        self._skip(_SPACE_AND_LINES)
        node = self._choice(is_nested=True)
        if not self._comes(")"):
            self._fail(f"expected ')' for the '(' at {self._place(opened)}")
        self._at += 1
        self._depth -= 1
        return node

    def _literal(self) -> Node:
        opened = self._at
        self._at += 1
        pieces = []
        while not self._text.startswith('"', self._at):
            if (plain := _PLAIN.match(self._text, self._at)) is not None:
                pieces.append(plain.group())
                self._at = plain.end()
            else:
                pieces.append(self._char(f"expected '\"' for the one at {self._place(opened)}"))
        self._at += 1
        return Literal("".join(pieces))

    def _char_class(self) -> Node:
        opened = self._at
        missing = f"expected ']' for the '[' at {self._place(opened)}"
        self._at += 1
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        ranges = []
        while not self._text.startswith("]", self._at):
            position = self._at
            first = last = self._char(missing)
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._char(missing)
            if last < first:
                self._fail(f"a range from {first!r} to {last!r}, which comes before it", position)
            ranges.append((first, last))
        self._at += 1
        if not ranges and not is_negated:
            self._fail("an empty set of characters", opened)
        return CharClass(tuple(ranges), is_negated)

    def _char(self, missing: str) -> str:
        """One character or escape. ``missing``: what to say when the line or the text ends."""
        char = self._text[self._at : self._at + 1]
        if char in ("", "\n", "\r"):
            self._fail(missing)
        if char != "\\":
            self._at += 1
            return char
        kind = self._text[self._at + 1 : self._at + 2]
        if kind in _ESCAPES and kind:
            self._at += 2
            return _ESCAPES[kind]
        if kind not in _HEX or not kind:
            self._fail(f"unknown escape '\\{kind}'; known are \\n \\t \\r \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH")
        digits = self._text[self._at + 2 : self._at + 2 + _HEX[kind]]
        if not re.fullmatch(r"[0-9a-fA-F]+", digits) or len(digits) < _HEX[kind]:
            self._fail(f"expected {_HEX[kind]} hexadecimal digits after \\{kind}")
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self._fail(f"\\{kind}{digits} is no character")
        self._at += 2 + len(digits)
        return chr(code)

    def _name(self, what: str) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail(f"expected {what}, found {self._found()}")
        self._at = found.end()
        return found.group()

    def _expect(self, mark: str) -> None:
        if not self._text.startswith(mark, self._at):
            self._fail(f"expected '{mark}', found {self._found()}")
        self._at += len(mark)

    def _found(self) -> str:
        return repr(self._text[self._at]) if self._at < len(self._text) else "the end"

    def _skip(self, space: re.Pattern[str]) -> None:
        if (found := space.match(self._text, self._at)) is not None:
            self._at = found.end()

    def _place(self, position: int) -> str:
        return place_of(self._text, position)

    def _fail(self, reason: str, position: int | None = None) -> NoReturn:
        fail_at(self._text, self._at if position is None else position, reason)
