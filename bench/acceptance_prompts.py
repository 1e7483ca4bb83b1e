"""The prompts of bench.acceptance: code to go on with, agent chats, and files to repeat with a name changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_tests.eval.chats import load_chats, request_body

CODE = Path(__file__).resolve().parents[1] / "compat_tests" / "data" / "kl-python.txt"
CODE_LINES = 60  # of a prompt
CODE_TOKENS = 128  # of its answer
CHAT_TOKENS = 128
EDIT_TOKENS = 256
EDIT_HEAD = 6  # lines of the renamed file that the prompt gives away
# First line in CODE, lines, the name that changes, its new name
EDITS = (
    (62, 38, "path", "file_name"),
    (115, 34, "parts", "pieces"),
    (150, 26, "tensors", "arrays"),
    (668, 45, "engine", "machine"),
    (746, 42, "status", "state_line"),
)


@dataclass(frozen=True)
class Prompt:
    """One request: its kind, its endpoint, its body without sampling."""

    kind: str
    path: str
    body: dict[str, Any]


def code_prompts(n: int) -> list[Prompt]:
    """Stretches of Python source; the model goes on."""
    lines = CODE.read_text(encoding="utf-8").splitlines()
    step = max(1, (len(lines) - CODE_LINES) // max(1, n))
    texts = ["\n".join(lines[i * step : i * step + CODE_LINES]) + "\n" for i in range(n)]
    return [_completion("code", text, CODE_TOKENS) for text in texts]


def chat_prompts(n: int) -> list[Prompt]:
    """Evenly spaced ones of the recorded agent chats, tools included."""
    chats = load_chats()
    picked = [chats[i * len(chats) // n] for i in range(min(n, len(chats)))] if n else []
    bodies = [{**request_body(chat), "max_tokens": CHAT_TOKENS} for chat in picked]
    return [Prompt("chat", "/v1/chat/completions", body) for body in bodies]


def edit_prompts(n: int) -> list[Prompt]:
    """A file, a comment that says what is renamed, and how the renamed file begins."""
    lines = CODE.read_text(encoding="utf-8").splitlines()
    found = []
    for first, count, old, new in EDITS[:n]:
        source = "\n".join(lines[first : first + count])
        head = "\n".join(source.replace(old, new).splitlines()[:EDIT_HEAD])
        text = f"{source}\n\n\n# The same file with {old} renamed to {new}:\n\n{head}\n"
        found.append(_completion("edit", text, EDIT_TOKENS))
    return found


def all_prompts(n_code: int, n_chat: int, n_edit: int) -> list[Prompt]:
    return [*code_prompts(n_code), *chat_prompts(n_chat), *edit_prompts(n_edit)]


def of_kind(prompts: Sequence[Prompt], *kinds: str) -> list[Prompt]:
    return [prompt for prompt in prompts if prompt.kind in kinds]


def _completion(kind: str, text: str, n_tokens: int) -> Prompt:
    return Prompt(kind, "/completion", {"prompt": text, "n_predict": n_tokens, "ignore_eos": True})
