"""What the model is made to say: one text for each turn of a client's task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TOOLS_MARK = "<tools>"  # begins the list of tools in prompts of the Qwen3.5 template
RESULT_MARK = "<tool_response>"  # begins each result of a tool


@dataclass(frozen=True)
class Play:
    """``turns[n]`` is said after n results of tools, the last one also after more.

    ``aside`` answers what agents ask besides, without tools: titles and summaries of the conversation. It is None for
    clients that never offer tools.
    """

    turns: Sequence[str]
    aside: str | None = "Change of a greeting"

    def answer(self, prompt: str) -> str:
        """The text for a rendered prompt."""
        if self.aside is not None and TOOLS_MARK not in prompt:
            return self.aside
        return self.turns[min(prompt.count(RESULT_MARK), len(self.turns) - 1)]


def call_text(name: str, **parameters: str) -> str:
    """A call as Qwen3.5 writes it."""
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"
