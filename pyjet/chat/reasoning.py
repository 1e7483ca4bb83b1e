"""Text fields of an answer: what belongs to `reasoning_content` or `content`, without the white space around tags."""

from __future__ import annotations

from pyjet.chat.pattern import WHITESPACE


class TextField:
    """Collects one text field and gives out what is certain.

    White space is held until text follows, so that what stands before a closing tag or a call can be dropped. A stray
    tag is held with it: at the very end of an answer it means nothing.
    """

    def __init__(self, skip_leading: bool) -> None:
        self.text: list[str] = []  # everything given out
        self._skip_leading = skip_leading
        self._held: list[str] = []
        self._tag_held = False
        self._separator = ""

    @property
    def empty(self) -> bool:
        return not self.text

    def skip_leading(self, separator: str = "") -> None:
        """White space is dropped until text comes; `separator` then stands between it and earlier text."""
        self._held.clear()
        self._tag_held = False
        self._skip_leading = True
        self._separator = separator if self.text else ""

    def add(self, text: str) -> str:
        """Add text; returns what may be sent."""
        if self._skip_leading:
            text = text.lstrip(WHITESPACE)
            if not text:
                return ""
            self._skip_leading = False
            text = self._separator + text
        body = text.rstrip(WHITESPACE)
        tail = text[len(body):]
        sure = ""
        if body:
            sure = "".join(self._held) + body
            self._held.clear()
            self._tag_held = False
            self.text.append(sure)
        if tail:
            self._held.append(tail)
        return sure

    def hold_tag(self, tag: str) -> None:
        """Keep a stray tag back: it is text only if more text follows."""
        if self._skip_leading:
            self._skip_leading = False
            self._held = [self._separator]
        self._held.append(tag)
        self._tag_held = True

    def drop_held(self) -> None:
        """A tag follows: the white space before it is nobody's."""
        self._held.clear()
        self._tag_held = False

    def flush(self) -> str:
        """The answer ends here (or is looked at as it stands): held white space is text, a stray tag is not."""
        text = "" if self._tag_held else "".join(self._held)
        self.drop_held()
        if text:
            self.text.append(text)
        return text
