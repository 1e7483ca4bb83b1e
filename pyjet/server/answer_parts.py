"""One chat answer as a row of parts: thoughts, texts and tool calls, one after the other.

APIs that show an answer as a list of blocks or items build on this: streamed, they send what happens to the parts;
otherwise they list the parts at the end. Both see the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pyjet.chat.stream_parser import ChatStreamParser
from pyjet.chat.types import Delta, PreparedChat
from pyjet.server.choice import Result
from pyjet.server.results import random_id

PartKind = Literal["reasoning", "content", "tool"]
_KINDS: dict[str, PartKind] = {
    "reasoning": "reasoning",
    "content": "content",
    "tool_start": "tool",
    "tool_args": "tool",
}


@dataclass
class Part:
    """``index`` counts the parts of an answer from 0. The text of a call is its arguments.

    ``id``: random letters and digits, minted once. ``is_cut``: generation hit a limit inside this part.
    """

    kind: PartKind
    index: int
    id: str
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    is_cut: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class PartEvent(NamedTuple):
    """A part begins, grows by ``text``, or is complete. A part ends before the next one begins."""

    kind: Literal["start", "delta", "stop"]
    part: Part
    text: str = ""


class AnswerParts:
    """Reads one answer. ``end_text`` is called when all that the client wants is there, though the model goes on."""

    def __init__(self, prepared: PreparedChat, end_text: Callable[[], None] = lambda: None) -> None:
        self.parts: list[Part] = []
        self._parser = ChatStreamParser(prepared)
        self._open: Part | None = None
        self._end_text = end_text
        self._ended = False

    @property
    def has_calls(self) -> bool:
        return any(part.kind == "tool" for part in self.parts)

    def push(self, text: str) -> list[PartEvent]:
        """Read a piece of the answer."""
        events = self._events(self._parser.push(text))
        if self._parser.finished_calls and not self._ended:
            self._ended = True
            self._end_text()
        return events

    def finish(self, result: Result) -> list[PartEvent]:
        """The answer is over; every part is complete now."""
        inside_call = self._parser.call_open
        events = self._events(self._parser.finish(truncated=result.stop_type != "eos"))
        if self._open is not None:
            self._open.is_cut = result.is_cut and (inside_call or self._open.kind != "tool")
        return events + self._close()

    def _events(self, deltas: Sequence[Delta]) -> list[PartEvent]:
        events: list[PartEvent] = []
        for delta in deltas:
            kind = _KINDS[delta.kind]
            if self._open is None or self._open.kind != kind or delta.kind == "tool_start":
                events += self._close()
                events.append(self._begin(kind, delta))
            assert self._open is not None
            if delta.text:
                self._open.pieces.append(delta.text)
                events.append(PartEvent("delta", self._open, delta.text))
        return events

    def _begin(self, kind: PartKind, delta: Delta) -> PartEvent:
        self._open = Part(kind, len(self.parts), delta.id or random_id(), delta.name)
        self.parts.append(self._open)
        return PartEvent("start", self._open)

    def _close(self) -> list[PartEvent]:
        part, self._open = self._open, None
        return [] if part is None else [PartEvent("stop", part)]


def read_parts(prepared: PreparedChat, result: Result) -> AnswerParts:
    """The parts of an answer that is there as a whole."""
    answer = AnswerParts(prepared)
    answer.push(result.content)
    answer.finish(result)
    return answer
