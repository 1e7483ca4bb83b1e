"""Calls that stand for a whole answer: JSON objects that name a tool, alone or in a list, without tags around them.

Models write them whose templates show no tags of their own: Llama 3 as `{"name": …, "parameters": {…}}`, Mistral and
Granite as a list, behind a control token that is not part of the text.
"""

from __future__ import annotations

from pyjet.chat.pattern import MAX_SPACE, SPACE, WHITESPACE, Match, Pattern, match

_KEYS = frozenset({'"name"', '"type"', '"id"', '"arguments"', '"parameters"'})
_OBJECT: Pattern = ("{", SPACE, _KEYS)
_LIST: Pattern = ("[", SPACE, *_OBJECT)
_BETWEEN = WHITESPACE + ",;]"


class PlainCalls:
    """Where such calls may begin: at the beginning of the content, and behind one that there was."""

    def __init__(self) -> None:
        self.is_possible = True
        self._was_one = False

    def find(self, text: str, pos: int, final: bool) -> Match:
        """A call that begins at ``pos``, white space aside; ``end`` is where its "{" is.

        Where none begins none may come later, and ``end`` is where the text goes on: behind what closes a list.
        """
        start = pos
        between = _BETWEEN if self._was_one else WHITESPACE
        while start < len(text) and text[start] in between and start - pos <= MAX_SPACE:
            start += 1
        if start == len(text) and not final and start - pos <= MAX_SPACE:
            return Match("partial")
        found = match(_LIST if text.startswith("[", start) else _OBJECT, text, start, final)
        if found.state == "full":
            return Match("full", text.index("{", start))
        self.is_possible = found.state == "partial"
        return found if self.is_possible else Match("none", start if self._was_one else pos)

    def go_on(self) -> None:
        """There was a call: others may follow it."""
        self._was_one = True
