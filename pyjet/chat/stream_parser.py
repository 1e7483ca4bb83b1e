"""The answer's text, piece by piece, turned into reasoning, content and tool calls.

The parser keeps only text that later text may still change: white space, the beginning of a tag, a few characters
behind a closing tag. All of it is bounded, so the work per character does not grow with the answer, and the deltas
given out add up to the final message whatever the pieces were.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from pyjet.chat.pattern import NAME, SPACE, WHITESPACE, Match, Pattern, match
from pyjet.chat.plain_calls import PlainCalls
from pyjet.chat.reasoning import TextField
from pyjet.chat.schema_types import parameter_types
from pyjet.chat.tool_calls import CallReader, HermesJsonCall, ParameterTypes, QwenXmlCall
from pyjet.chat.types import ChatMessage, Delta, PreparedChat, ToolCall

__all__ = ["ChatStreamParser", "Delta"]

_ID_ALPHABET = string.ascii_letters + string.digits
_CALL_TAG = "<tool_call>"
_XML_CALL: Pattern = (_CALL_TAG, SPACE, "<function=", NAME, ">")
_BARE_CALL: Pattern = ("<function=", NAME, ">")
_JSON_CALL: Pattern = (_CALL_TAG, SPACE, "{", SPACE,
                       frozenset({'"name"', '"arguments"', '"parameters"', '"id"', '"type"', "}"}))
_CALLS: dict[str, tuple[str, Pattern]] = {"qwen_xml": ("xml", _XML_CALL), "hermes_json": ("json", _JSON_CALL)}
_LEFTOVER_TAGS = ("</tool_call>", "</function>", "</parameter>", "</think>")


def new_call_id() -> str:
    """32 random letters and digits."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(32))


@dataclass
class _Call:
    index: int
    id: str
    name: str
    pieces: list[str] = field(default_factory=lambda: ["{"])


class ChatStreamParser:
    """Parses one answer to a PreparedChat.

    push() takes text as the model produces it, finish() ends it; both return the deltas to send. The deltas of a
    prefilled assistant message come with the first push(), unless the request hides them. message() is the whole
    message so far (final after finish()). `call_open`: the text stands inside a tool call. `finished_calls`: with
    `parallel_tool_calls` off the first call is complete, nothing that follows is delivered and generation may stop.
    """

    def __init__(self, prepared: PreparedChat, make_call_id: Callable[[], str] = new_call_id) -> None:
        self._prepared = prepared
        self._make_call_id = make_call_id
        self._types: dict[str, ParameterTypes] = {
            tool["function"]["name"]: parameter_types(tool["function"]) for tool in prepared.tools}
        self._text = ""
        self._mode: Literal["start", "reasoning", "content", "call"] = "start"
        self._reasoning = TextField(skip_leading=True)
        self._content = TextField(prepared.skip_leading_space)
        self._reader: CallReader | None = None
        self._reader_opening = ""
        self._calls: list[_Call] = []
        self._after_call = False  # no content since the last call
        self._after_thoughts = False  # no content since the thoughts ended
        self._plain = PlainCalls() if prepared.has_unknown_calls else None
        self._deltas: list[Delta] = []
        if not prepared.extract_reasoning:
            self._mode = "content"
        if prepared.parse_prefix:
            self._read(prepared.parse_prefix, final=False)
        if prepared.hide_prefill:
            self._reasoning.flush()
            self._content.flush()
            self._deltas.clear()

    @property
    def call_open(self) -> bool:
        return self._reader is not None

    @property
    def finished_calls(self) -> bool:
        return not self._prepared.parallel_tool_calls and bool(self._calls) and self._reader is None

    @property
    def held_chars(self) -> int:
        """Characters waiting for what follows them, white space apart."""
        return len(self._text)

    def push(self, text: str) -> list[Delta]:
        """Read a piece of the answer."""
        self._read(text, final=False)
        return self._take_deltas()

    def finish(self, truncated: bool = False) -> list[Delta]:
        """End the answer. `truncated`: it was cut (a limit, a stop string) rather than ended by the model.

        An open call keeps its arguments as far as they go when truncated, and is completed to valid JSON otherwise.
        """
        self._read("", final=True, truncated=truncated)
        if self._reader is not None:
            if truncated and (self._reader.name is not None or self._plain is None):
                self._call_text(self._reader.cut())
            else:
                self._close_call(self._reader)
            self._reader = None
        elif not self.finished_calls:
            self._give("reasoning", self._reasoning.flush())
            self._give("content", self._content.flush())
        return self._take_deltas()

    def message(self) -> ChatMessage:
        """The message that all deltas so far add up to, a hidden prefill included."""
        return ChatMessage(
            content="".join(self._content.text),
            reasoning_content="".join(self._reasoning.text),
            tool_calls=tuple(ToolCall(call.id, call.name, "".join(call.pieces)) for call in self._calls),
        )

    # reading

    def _read(self, text: str, final: bool, truncated: bool = False) -> None:
        text = self._text + text
        pos = 0
        while pos < len(text):
            if self.finished_calls:
                pos = len(text)
                break
            if self._reader is not None:
                after = self._in_call(text, pos, final)
            elif self._mode == "start":
                after = self._at_start(text, pos, final)
            else:
                after = self._in_text(text, pos, final, truncated)
            if after < 0:
                break
            pos = after
        self._text = text[pos:]

    def _at_start(self, text: str, pos: int, final: bool) -> int:
        """Before anything was said: an opening tag begins the thoughts. -1: more text must come first."""
        while pos < len(text) and text[pos] in WHITESPACE:
            pos += 1
        found = match(("<think>",), text, pos, final)
        if found.state == "partial":
            return -1 if pos < len(text) else pos
        self._mode = "reasoning" if found.state == "full" else "content"
        return found.end if found.state == "full" else pos

    def _in_text(self, text: str, pos: int, final: bool, truncated: bool) -> int:
        if self._plain is not None and self._plain.is_possible and self._mode == "content":
            found = self._plain.find(text, pos, final)
            if found.state == "full":
                return self._begin_plain_call(text, pos, found.end)
            if found.state == "partial" or found.end > pos:
                return -1 if found.state == "partial" else found.end
        tag = text.find("<", pos)
        if tag != pos:
            end = len(text) if tag < 0 else tag
            self._add_text(text[pos:end])
            return end
        kind, found = self._tag_at(text, pos, final)
        if found.state == "partial":
            return -1
        if kind:
            return self._on_tag(kind, found, text, pos)
        if final and truncated and self._prepared.parse_tools and self._begins_call(text, pos):
            self._field().drop_held()
            return len(text)  # cut between <tool_call> and the function's name: a call nobody can know yet
        self._add_text("<")
        return pos + 1

    def _begins_call(self, text: str, pos: int) -> bool:
        return text.startswith(_CALL_TAG, pos) and any(
            match(pattern, text, pos).state == "partial" for _, pattern in _CALLS.values())

    def _tag_at(self, text: str, pos: int, final: bool) -> tuple[str, Match]:
        """(kind, match) of a tag that means something here; kind "" when none does."""
        partial = Match("none")
        for kind, pattern in self._patterns():
            found = match(pattern, text, pos, final)
            if found.state == "full" and not (kind == "bare" and found.name not in self._types):
                return kind, found
            if found.state == "partial":
                partial = found
        return "", partial

    def _patterns(self) -> list[tuple[str, Pattern]]:
        patterns: list[tuple[str, Pattern]] = []
        own = _CALLS.get(self._prepared.format)
        if own is not None and (self._prepared.parse_tools or self._mode == "reasoning"):
            patterns.append(own)
        if self._prepared.parse_tools and self._mode == "content":
            # models mix the two forms up; in thoughts, though, the other one is a quotation
            patterns += [call for call in _CALLS.values() if call is not own]
            if self._prepared.allow_bare_function or self._after_call:
                patterns.append(("bare", _BARE_CALL))
            if self._after_call:
                patterns += [("leftover", (tag,)) for tag in _LEFTOVER_TAGS]
        if self._prepared.extract_reasoning:
            patterns += [("think", ("<think>",)), ("end_think", ("</think>",))]
        return patterns

    def _on_tag(self, kind: str, found: Match, text: str, pos: int) -> int:
        if kind in ("xml", "json", "bare"):
            return self._begin_call(kind, found, text, pos)
        if kind == "leftover":
            return found.end
        if self._mode == "reasoning":
            if kind == "think":
                self._add_text("<think>")
            else:
                self._end_thoughts()
            return found.end
        if kind == "think" and (self._after_call or (self._after_thoughts and self._prepared.enable_thinking)):
            self._reasoning.skip_leading("\n")
            self._mode = "reasoning"
        elif not (kind == "end_think" and self._after_thoughts):
            self._content.hold_tag(text[pos:found.end])
        return found.end

    def _end_thoughts(self) -> None:
        self._reasoning.drop_held()
        self._mode = "content"
        if not self._after_call:
            self._content.skip_leading()
        self._after_thoughts = True

    # calls

    def _begin_call(self, kind: str, found: Match, text: str, pos: int) -> int:
        if self._mode == "reasoning":
            self._end_thoughts()
            if not self._prepared.parse_tools:
                return pos
        self._content.drop_held()
        if kind == "json":
            brace = text.index("{", pos)
            self._reader = HermesJsonCall()
            self._reader_opening = text[pos:brace]
            return brace
        self._reader = QwenXmlCall(found.name, self._types.get(found.name, {}))
        self._announce()
        return found.end

    def _begin_plain_call(self, text: str, pos: int, brace: int) -> int:
        self._reader = HermesJsonCall(self._types)
        self._reader_opening = text[pos:brace]
        return brace

    def _in_call(self, text: str, pos: int, final: bool) -> int:
        reader = self._reader
        assert reader is not None
        announced = reader.name is not None
        after = reader.feed(text, pos, final)
        if not announced and reader.name is not None:
            self._announce()
        self._call_text(reader.take())
        is_lost = self._plain is not None and reader.name is None and isinstance(reader, HermesJsonCall) and reader.lost
        if not reader.done and not is_lost:
            return after if after > pos else -1
        self._reader = None
        if reader.name is None and isinstance(reader, HermesJsonCall):
            if self._plain is not None:
                self._plain.is_possible = False
            self._add_text(self._reader_opening + "".join(reader.unnamed))
            return after
        self._after_call = True
        if self._plain is not None:
            self._plain.go_on()
        self._content.skip_leading("\n")
        return after

    def _close_call(self, reader: CallReader) -> None:
        """The model ended its answer inside a call. A name that was not complete makes none."""
        is_named = reader.name is not None
        rest = reader.close()
        if is_named:
            self._call_text(rest)
        elif isinstance(reader, HermesJsonCall):
            self._add_text(self._reader_opening + "".join(reader.unnamed))
            if self._plain is not None:
                self._give("content", self._content.flush())

    def _announce(self) -> None:
        assert self._reader is not None and self._reader.name is not None
        call = _Call(len(self._calls), self._make_call_id(), self._reader.name)
        self._calls.append(call)
        self._deltas.append(Delta("tool_start", "{", call.index, call.id, call.name))

    def _call_text(self, text: str) -> None:
        if text and self._reader is not None and self._reader.name is not None:
            call = self._calls[-1]
            call.pieces.append(text)
            self._deltas.append(Delta("tool_args", text, call.index))

    # text

    def _field(self) -> TextField:
        return self._reasoning if self._mode == "reasoning" else self._content

    def _add_text(self, text: str) -> None:
        if self._mode == "reasoning":
            self._give("reasoning", self._reasoning.add(text))
            return
        self._give("content", self._content.add(text))
        if text.strip(WHITESPACE):
            self._after_call = self._after_thoughts = False

    def _give(self, kind: Literal["reasoning", "content"], text: str) -> None:
        if text:
            self._deltas.append(Delta(kind, text))

    def _take_deltas(self) -> list[Delta]:
        """Pending deltas, neighbours of one kind joined."""
        joined: list[Delta] = []
        for (kind, index, _), group in groupby(self._deltas, key=lambda delta: (delta.kind, delta.index, delta.id)):
            first, *others = group
            text = first.text + "".join(delta.text for delta in others)
            joined.append(Delta(kind, text, index, first.id, first.name))
        self._deltas.clear()
        return joined
