"""One agent's messages in the script of bench.conversation, and how they change from request to request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bench import conversation_text as text

Kind = Literal["go on", "ask", "retry", "compact"]
Message = dict[str, Any]

ASKING = 3  # every third turn a user speaks: the template then drops the thoughts of the turns before
RETRY = (2, 5)  # agent, turn: asked once more, with another message instead of the last user's
COMPACTION = (3, 7)  # agent, turn: a summary takes the place of the history


@dataclass(frozen=True)
class Step:
    """One request. ``go on``: the tools' answers, or a user's message when no tool was called."""

    turn: int
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.turn}{'b' * (self.kind == 'retry')}"


def steps(agent: int, turns: int) -> list[Step]:
    """The requests of an agent; agents and turns count from 1."""
    found: list[Step] = []
    for turn in range(1, turns + 1):
        asks = turn % ASKING == 1
        found.append(Step(turn, "compact" if (agent, turn) == COMPACTION else "ask" if asks else "go on"))
        if (agent, turn) == RETRY:
            found.append(Step(turn, "retry"))
    return found


class History:
    """The messages that an agent sends with its next request."""

    def __init__(self, seed: int, agent: int) -> None:
        self._seed = seed
        self._agent = agent
        self.messages: list[Message] = [{"role": "system", "content": text.system_prompt(seed)}]

    def advance(self, step: Step) -> None:
        """Add, or put in the place of others, the messages of the next request."""
        if step.kind == "retry":
            self._cut_last_question()
        elif step.kind == "compact":
            self.messages = [*self.messages[:1], self._user(text.summary(self._seed, self._agent))]
            return
        answers = self._tool_answers(step)
        self.messages += answers
        if step.kind != "go on" or not answers:
            self.messages.append(self._user(text.question(self._seed, self._agent, step.name)))

    def add_answer(self, message: Message) -> None:
        """Append what the model said, as it was received."""
        self.messages.append(message)

    def _cut_last_question(self) -> None:
        last = max(i for i, message in enumerate(self.messages) if message["role"] == "user")
        del self.messages[last:]

    def _tool_answers(self, step: Step) -> list[Message]:
        """One for each call of the last message; those before the last question were answered already."""
        calls = self.messages[-1].get("tool_calls") or []
        return [
            {"role": "tool", "tool_call_id": call["id"],
             "content": text.tool_response(self._seed, self._agent, f"{step.name} {i}")}
            for i, call in enumerate(calls)
        ]  # fmt: skip

    @staticmethod
    def _user(content: str) -> Message:
        return {"role": "user", "content": content}
