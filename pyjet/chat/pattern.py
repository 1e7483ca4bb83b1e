"""Small patterns that can be matched against text which is still arriving.

A pattern is a tuple of elements: a literal, a frozenset of alternative literals, SPACE (up to MAX_SPACE white space
characters), NAME (a tool or parameter name) or END (end of the answer, matched only when the text is final). The
lookahead of every pattern is bounded, so the text that has to be held back for it is bounded too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WHITESPACE = " \t\n\r\f\v"
MAX_SPACE = 32
MAX_NAME = 256


class _Mark:
    """An element that is not a literal."""


SPACE = _Mark()
NAME = _Mark()
END = _Mark()
Element = str | frozenset[str] | _Mark
Pattern = tuple[Element, ...]


@dataclass(frozen=True)
class Match:
    """`state`: "full", "partial" (more text decides) or "none"; `end`: position behind it; `name`: NAME's text."""

    state: Literal["full", "partial", "none"]
    end: int = 0
    name: str = ""


_NONE = Match("none")
_PARTIAL = Match("partial")


def match(pattern: Pattern, text: str, pos: int, final: bool = False) -> Match:
    """Match at `pos`. With `final` no more text comes: what is incomplete does not match."""
    result = _match(pattern, text, pos, final)
    return _NONE if final and result.state == "partial" else result


def _match(pattern: Pattern, text: str, pos: int, final: bool) -> Match:
    name = ""
    for element in pattern:
        if element is SPACE:
            end = min(len(text), pos + MAX_SPACE)
            while pos < end and text[pos] in WHITESPACE:
                pos += 1
        elif element is NAME:
            end = pos
            while end < len(text) and end - pos <= MAX_NAME and text[end] not in "<>\n":
                end += 1
            if end - pos > MAX_NAME or (end < len(text) and text[end] != ">") or (end < len(text) and end == pos):
                return _NONE
            if end == len(text):
                return _PARTIAL
            name = text[pos:end].strip()
            if not name:
                return _NONE
            pos = end
        elif element is END:
            if pos < len(text):
                return _NONE
            if not final:
                return _PARTIAL
        else:
            found = _literal(element, text, pos)
            if isinstance(found, Match):
                return found
            pos = found
    return Match("full", pos, name)


def _literal(element: Element, text: str, pos: int) -> int | Match:
    """Position behind the literal, or the failed match."""
    result = _NONE
    for literal in element if isinstance(element, frozenset) else (str(element),):
        if text.startswith(literal, pos):
            return pos + len(literal)
        if len(text) - pos < len(literal) and literal.startswith(text[pos:]):
            result = _PARTIAL
    return result


def first_match(patterns: tuple[Pattern, ...], text: str, pos: int, final: bool = False) -> tuple[int, Match]:
    """(index, match) of the first full match; else (-1, partial) if one may still match; else (-1, none)."""
    result = _NONE
    for index, pattern in enumerate(patterns):
        found = match(pattern, text, pos, final)
        if found.state == "full":
            return index, found
        if found.state == "partial":
            result = found
    return -1, result
