"""Finds the text behind which a grammar begins, while an answer is generated."""

from __future__ import annotations

import logging
from typing import Any

import regex

from pyjet.grammar.description import Mark

log = logging.getLogger(__name__)
PATIENCE_SECONDS = 0.02  # all agents wait while a pattern is searched


def compile_pattern(pattern: str) -> Any:
    """As Python's ``re`` understands it, but its searches can be given a time limit. Raises ValueError."""
    try:
        return regex.compile(pattern, regex.DOTALL)
    except regex.error as error:
        raise ValueError(str(error)) from None


class MarkSearch:
    """Searches the bytes of one answer. Of literal texts it keeps no more than may still become one.

    A pattern whose search takes too long (its time may grow exponentially) is given up: no grammar begins any more.
    """

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._texts = [text.encode() for text in mark.texts]
        self._pattern: Any = compile_pattern(mark.pattern) if mark.pattern else None
        opening, closing = (tag.encode() for tag in mark.thoughts or ("", ""))
        self._opening, self._closing = opening, closing
        self._inside = mark.inside
        self._n_kept = max((len(text) for text in (*self._texts, opening, closing)), default=1) - 1
        self._text = b""
        self._is_given_up = False

    def add(self, piece: bytes) -> bytes | None:
        """More of the answer. Once a mark is in it: the text that the grammar has to describe so far."""
        self._text += piece
        found = self._found()
        if found is None and self._pattern is None:
            self._text = self._text[max(0, len(self._text) - self._n_kept) :]
        return found

    def next(self) -> bytes | None:
        """Likewise behind the mark that was found last, in what there is already."""
        return self.add(b"") if self._pattern is None else None

    def n_before(self, pieces: list[bytes]) -> int:
        """How many of these pieces may come before one completes a mark. Nothing is added."""
        before = self._text, self._inside
        n = next((i for i, piece in enumerate(pieces) if self.add(piece) is not None), len(pieces))
        self._text, self._inside = before
        return n

    def _found(self) -> bytes | None:
        if self._is_given_up:
            return None
        if self._pattern is not None:
            return self._by_pattern(self._pattern)
        while True:
            if self._inside:
                if not self._pass(self._closing):
                    return None
                self._inside = False
            at, text = min(((at, t) for t in self._texts if (at := self._text.find(t)) >= 0), default=(-1, b""))
            opened = self._text.find(self._opening) if self._opening else -1
            if at >= 0 and not 0 <= opened < at:
                rest = self._text[at if self._mark.is_part else at + len(text) :]
                self._text = self._text[at + len(text) :]  # where the grammar does not begin here, the search goes on
                return rest
            if opened < 0:
                return None
            self._pass(self._opening)
            self._inside = True

    def _pass(self, tag: bytes) -> bool:
        _, found, behind = self._text.partition(tag)
        if found:
            self._text = behind
        return bool(found)

    def _by_pattern(self, pattern: Any) -> bytes | None:
        text = self._text.decode("utf-8", "replace")
        try:
            match = pattern.search(text, timeout=PATIENCE_SECONDS)
        except TimeoutError:
            log.warning("the grammar's trigger %.100r takes too long to search for and is given up", pattern.pattern)
            self._is_given_up = True
            return None
        if match is None:
            return None
        group = next((i for i in range(1, (pattern.groups or 0) + 1) if match.group(i)), 0)
        return text[match.start(group) if self._mark.is_part else match.end() :].encode()
