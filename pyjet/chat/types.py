"""The values that cross the border of `pyjet.chat`: options in, a prepared prompt out, deltas of the answer out.

Everything here is text. Token ids belong to `pyjet.engine`, HTTP to `pyjet.server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyjet.grammar.description import Grammar

CallFormat = Literal["qwen_xml", "hermes_json", "content_only"]
REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")


class ChatError(Exception):
    """A chat request that cannot be served: `status` (HTTP), `message` and `type` as llama-server words them."""

    def __init__(self, status: int, message: str, type: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type


@dataclass(frozen=True)
class ChatOptions:
    """Command-line settings that shape a chat prompt and the parsing of its answer.

    `reasoning` is `--reasoning` (on, off or auto), `template_kwargs` is `--chat-template-kwargs`.
    `add_bos` / `add_eos` say that the tokenizer adds that token itself, so the rendered text must not repeat it.
    """

    jinja: bool = True
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    reasoning: str = "auto"
    reasoning_format: str = "deepseek"
    reasoning_effort: str | None = None
    reasoning_preserve: bool = True
    prefill_assistant: bool = True
    skip_chat_parsing: bool = False
    add_bos: bool = False
    add_eos: bool = False


@dataclass(frozen=True)
class PreparedChat:
    """One chat request, validated and rendered.

    - `prompt`: the text to tokenise, with special tokens parsed.
    - `generation_prompt`: the end of `prompt` that belongs to the answer's turn (echoed in generation_settings).
    - `parse_prefix`: the part of it that the parser reads before the model's own text (an open `<think>`, a prefill).
    - `thinking_open`: the prompt ends inside the thoughts.
    - `parse_tools`: calls are taken out of the text; false for `tool_choice: "none"` and without tools.
    - `has_unknown_calls`: the model may call tools, in a form that its template does not tell: only an answer that is
      nothing but calls in JSON is taken for calls.
    - `extract_reasoning`: thoughts go to `reasoning_content`; false for `reasoning_format: "none"`.
    - `hide_prefill`: streamed deltas leave the prefill out (`continue_final_message` without `echo`).
    - `tools`: the request's tools as the template saw them (`{"type","function":{"name","description","parameters"}}`).
    - `n_probs`: what `logprobs` / `top_logprobs` ask for; None when they are absent.
    - `messages`: the history as the template saw it.
    - `grammar`: what the answer must follow: a schema, the client's grammar, or the form of calls.
    """

    prompt: str
    format: CallFormat = "content_only"
    chat_format: str = "peg-native"
    generation_prompt: str = ""
    parse_prefix: str = ""
    thinking_open: bool = False
    supports_thinking: bool = False
    enable_thinking: bool = False
    extract_reasoning: bool = False
    reasoning_format: str = "deepseek"
    skip_leading_space: bool = False
    allow_bare_function: bool = False
    tools: list[dict[str, Any]] = field(default_factory=list)
    tool_choice: str = "auto"
    parse_tools: bool = False
    has_unknown_calls: bool = False
    parallel_tool_calls: bool = True
    prefill_content: str = ""
    prefill_reasoning: str = ""
    hide_prefill: bool = False
    n_probs: int | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    grammar: Grammar | None = None


@dataclass(frozen=True)
class Delta:
    """A piece of the answer.

    `kind` is "reasoning", "content", "tool_start" or "tool_args". `text` is the piece itself; for the two tool kinds
    it is a piece of the call's `arguments`, and a "tool_start" brings the first one, "{". `index`, `id` and `name`
    are set for tool kinds (`id`, `name` only on "tool_start").
    """

    kind: Literal["reasoning", "content", "tool_start", "tool_args"]
    text: str
    index: int = 0
    id: str = ""
    name: str = ""

    def to_openai(self) -> dict[str, Any]:
        """The `delta` object of a chat.completion.chunk."""
        if self.kind == "content":
            return {"content": self.text}
        if self.kind == "reasoning":
            return {"reasoning_content": self.text}
        call: dict[str, Any] = {"index": self.index}
        if self.kind == "tool_start":
            call |= {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.text}}
        else:
            call["function"] = {"arguments": self.text}
        return {"tool_calls": [call]}


@dataclass(frozen=True)
class ToolCall:
    """A call the model made; `arguments` is JSON text, unclosed when generation was cut inside it."""

    id: str
    name: str
    arguments: str

    def to_openai(self) -> dict[str, Any]:
        """The entry of `message.tool_calls`, keys in llama-server's order."""
        return {"type": "function", "function": {"name": self.name, "arguments": self.arguments}, "id": self.id}


@dataclass(frozen=True)
class ChatMessage:
    """The assistant's message, whole."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()

    def to_openai(self) -> dict[str, Any]:
        """`choices[i].message`: `reasoning_content` and `tool_calls` only when there are any, `content` never null."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning_content:
            message["reasoning_content"] = self.reasoning_content
        if self.tool_calls:
            message["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        return message
