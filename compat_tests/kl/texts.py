"""The tokens that are scored: Python source and agent chats, the same on every machine and in every version."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from cli.llama_cpp import LlamaModel, Tokens
from pyjet.chat.template import ChatTemplate
from pyjet.model.reader import Model
from pyjet.model.tokenizer import Tokenizer

DATA = Path(__file__).resolve().parents[1] / "data"
CODE = DATA / "kl-python.txt"  # modules of this project as they once were, one after the other
CHATS = DATA / "eval-chats.jsonl"

TEMPLATE = "tokenizer.chat_template"
WINDOW_TOKENS = 1024
WINDOWS_PER_KIND = 6


class TextError(ValueError):
    """The texts cannot be cut into the windows, or the two tokenizers disagree on them."""


@dataclass(frozen=True)
class Window:
    """Tokens that are evaluated as a sequence of their own. kind: "code" or "chat"."""

    name: str
    kind: str
    tokens: Tokens


def windows(model: Model, llama: LlamaModel, per_kind: int = WINDOWS_PER_KIND) -> list[Window]:
    """The suite: per_kind windows of WINDOW_TOKENS tokens of each kind; no chats for a model without a template.

    Raises TextError when the tokenizers disagree or a text is too short.
    """
    tokenizer = Tokenizer.from_metadata(model.metadata)
    code = tokenize(CODE.read_text(encoding="utf-8"), tokenizer, llama)
    starts = np.linspace(0, len(code) - WINDOW_TOKENS, per_kind).astype(int)
    found = [_window("code", i, code[start:]) for i, start in enumerate(starts)]
    if TEMPLATE in model.metadata:
        texts = chat_texts(model, per_kind)
        found += [_window("chat", i, tokenize(text, tokenizer, llama)) for i, text in enumerate(texts)]
    return found


def tokenize(text: str, tokenizer: Tokenizer, llama: LlamaModel) -> Tokens:
    """Token ids on which both engines agree."""
    ids = llama.tokenize(text)
    if tokenizer.encode(text) != ids.tolist():
        raise TextError(f"the tokenizers disagree on a text that starts with {text[:40]!r}")
    return ids


def _window(kind: str, index: int, tokens: Tokens) -> Window:
    if len(tokens) < WINDOW_TOKENS:
        raise TextError(f"{kind} text {index + 1} has {len(tokens)} tokens, {WINDOW_TOKENS} are needed")
    return Window(f"{kind} {index + 1}", kind, tokens[:WINDOW_TOKENS])


def chat_texts(model: Model, n_parts: int) -> list[str]:
    """The evaluation chats in parts, each rendered one after the other."""
    template = ChatTemplate(model.metadata[TEMPLATE], bos_token="", eos_token="")
    rendered = [render_chat(template, json.loads(line)) for line in CHATS.read_text(encoding="utf-8").splitlines()]
    cuts = [i * len(rendered) // n_parts for i in range(n_parts + 1)]
    return ["".join(rendered[begin:end]) for begin, end in pairwise(cuts)]


def render_chat(template: ChatTemplate, chat: dict) -> str:
    """The chat as the model sees it, with the right answer as its last message."""
    calls = [{"type": "function", "function": call} for call in chat["expected"]]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    return template.render([*chat["messages"], answer], chat.get("tools"), add_generation_prompt=False)


def fingerprints() -> dict[str, str]:
    """File name -> start of its SHA-256, so that a record names the texts that it is about."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in (CODE, CHATS)}
