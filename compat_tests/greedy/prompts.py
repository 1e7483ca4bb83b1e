"""What is answered: pieces of Python source, and agent chats up to their answer."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from cli.llama_cpp import LlamaModel, Tokens
from compat_tests.kl.texts import CHATS, CODE, TEMPLATE, TextError, tokenize
from pyjet.chat.template import ChatTemplate
from pyjet.model.reader import Model
from pyjet.model.tokenizer import Tokenizer

PROMPT_TOKENS = 384  # of a longer chat these are the last, so its question and the start of the answer stay


@dataclass(frozen=True)
class Prompt:
    """Tokens int32 [at most PROMPT_TOKENS] that both engines continue."""

    name: str
    tokens: Tokens


def prompts(model: Model, llama: LlamaModel, per_kind: int) -> list[Prompt]:
    """per_kind pieces of source and as many chats, spread evenly; no chats for a model without a template.

    Raises TextError when the tokenizers disagree on a text or the source is too short.
    """
    tokenizer = Tokenizer.from_metadata(model.metadata)
    code = tokenize(CODE.read_text(encoding="utf-8"), tokenizer, llama)
    if len(code) < PROMPT_TOKENS:
        raise TextError(f"{CODE.name} has {len(code)} tokens, {PROMPT_TOKENS} are needed")
    starts = np.linspace(0, len(code) - PROMPT_TOKENS, per_kind).astype(int)
    found = [Prompt(f"code {i + 1}", code[start : start + PROMPT_TOKENS]) for i, start in enumerate(starts)]
    for i, text in enumerate(_chats(model, per_kind)):
        found.append(Prompt(f"chat {i + 1}", tokenize(text, tokenizer, llama)[-PROMPT_TOKENS:]))
    return found


def _chats(model: Model, count: int) -> list[str]:
    """Chats as the model sees them, up to where its answer begins."""
    if TEMPLATE not in model.metadata:
        return []
    template = ChatTemplate(model.metadata[TEMPLATE], bos_token="", eos_token="")
    lines = CHATS.read_text(encoding="utf-8").splitlines()
    chosen = [json.loads(lines[i]) for i in np.linspace(0, len(lines) - 1, count).astype(int)]
    return [template.render(c["messages"], c.get("tools"), add_generation_prompt=True) for c in chosen]
