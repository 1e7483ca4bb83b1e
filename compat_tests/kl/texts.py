"""The texts that are scored: Python source and agent chats."""

from __future__ import annotations

import heapq
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyjet.chat.template import ChatTemplate
from pyjet.model.reader import Model

CHATS = Path(__file__).resolve().parents[1] / "data" / "eval-chats.jsonl"
SOURCES = (heapq, shlex)  # modules of the standard library, read from the running Python


@dataclass(frozen=True)
class Text:
    """One text of the suite; `kind` is "code" or "chat"."""

    name: str
    kind: str
    content: str


def code_texts() -> Iterator[Text]:
    """Source files of the standard library."""
    for module in SOURCES:
        path = Path(str(module.__file__))
        yield Text(path.name, "code", path.read_text(encoding="utf-8"))


def chat_texts(model: Model, per_text: int = 6) -> Iterator[Text]:
    """Rendered agent chats with their expected tool calls, several joined into one text."""
    template = ChatTemplate(model.metadata["tokenizer.chat_template"], bos_token="", eos_token="")
    lines = CHATS.read_text(encoding="utf-8").splitlines()
    rendered = [render_chat(template, json.loads(line)) for line in lines]
    for i in range(0, 2 * per_text, per_text):
        yield Text(f"chats {i + 1}-{i + per_text}", "chat", "".join(rendered[i : i + per_text]))


def render_chat(template: ChatTemplate, chat: dict) -> str:
    """The chat as the model sees it, with the right answer as its last message."""
    calls = [{"type": "function", "function": call} for call in chat["expected"]]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    return template.render([*chat["messages"], answer], chat.get("tools"), add_generation_prompt=False)
