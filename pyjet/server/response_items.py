"""Output items of a response: a part of the answer as an object, and as events while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyjet.server.answer_parts import Part, PartEvent

Event = dict[str, Any]
_PREFIXES = {"reasoning": "rs_", "content": "msg_", "tool": "fc_"}


def output_item(part: Part) -> Event:
    """A complete item. One that a limit cut says so in its ``status``."""
    return _item(part, "incomplete" if part.is_cut else "completed")


def item_events(events: Sequence[PartEvent]) -> list[Event]:
    """The events of parts that begin, grow and end, without their ``sequence_number``."""
    makers = {"start": _added, "delta": _delta, "stop": _done}
    return [made for event in events for made in makers[event.kind](event)]


def _item_id(part: Part) -> str:
    return _PREFIXES[part.kind] + part.id


def _item(part: Part, status: str) -> Event:
    if part.kind == "reasoning":
        content = [{"text": part.text, "type": "reasoning_text"}] if part.pieces else []
        base: Event = {"id": _item_id(part), "summary": [], "type": "reasoning", "content": content}
        return {**base, "encrypted_content": "", "status": status}
    if part.kind == "content":
        content = [_text_content(part.text)] if part.pieces else []
        base = {"id": _item_id(part), "type": "message", "role": "assistant"}
        return {**base, "status": status, "content": content}
    base = {"id": _item_id(part), "type": "function_call", "status": status, "arguments": part.text}
    return {**base, "call_id": "call_" + part.id, "name": part.name}


def _text_content(text: str) -> Event:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _place(part: Part, *, inside: bool = True) -> Event:
    """Where an event belongs; ``inside``: to the item's only content."""
    place: Event = {"item_id": _item_id(part), "output_index": part.index}
    return {**place, "content_index": 0} if inside else place


def _added(event: PartEvent) -> list[Event]:
    part = replace(event.part, pieces=[])  # the same step may already have brought some of its text
    added: Event = {"type": "response.output_item.added", "output_index": part.index}
    events = [{**added, "item": _item(part, "in_progress")}]
    if part.kind == "content":
        events.append({"type": "response.content_part.added", **_place(part), "part": _text_content("")})
    return events


def _delta(event: PartEvent) -> list[Event]:
    part, text = event.part, {"delta": event.text}
    if part.kind == "reasoning":
        return [{"type": "response.reasoning_text.delta", **_place(part), **text}]
    if part.kind == "content":
        return [{"type": "response.output_text.delta", **_place(part), **text, "logprobs": []}]
    return [{"type": "response.function_call_arguments.delta", **_place(part, inside=False), **text}]


def _done(event: PartEvent) -> list[Event]:
    part = event.part
    done: Event = {"type": "response.output_item.done", "output_index": part.index}
    return [*_content_done(part), {**done, "item": output_item(part)}]


def _content_done(part: Part) -> list[Event]:
    if part.kind == "reasoning":
        return [{"type": "response.reasoning_text.done", **_place(part), "text": part.text}]
    if part.kind == "content":
        text = {"type": "response.output_text.done", **_place(part), "text": part.text, "logprobs": []}
        whole = {"type": "response.content_part.done", **_place(part), "part": _text_content(part.text)}
        return [text, whole]
    done = {"type": "response.function_call_arguments.done", **_place(part, inside=False)}
    return [{**done, "name": part.name, "arguments": part.text}]
