"""From an OpenAI chat request to a prompt: validation, defaults, thinking, assistant prefill, rendering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyjet.chat.answer_grammar import Wanted, answer_grammar
from pyjet.chat.builtin import render_plain
from pyjet.chat.history import for_template, plain_text, split_thoughts
from pyjet.chat.template import ChatTemplate, TemplateError
from pyjet.chat.types import REASONING_FORMATS, ChatError, ChatOptions, PreparedChat
from pyjet.chat.validation import (
    check_messages,
    check_tool_choice,
    constraint_of,
    field,
    parse_messages,
    parse_tool_choice,
    parse_tools,
)

__all__ = ["ChatError", "ChatOptions", "PreparedChat", "prepare_chat"]


@dataclass(frozen=True)
class _Continuation:
    """The assistant message that the answer continues; `part` is "content" or "reasoning"."""

    part: str
    content: str
    reasoning: str
    explicit: bool


def prepare_chat(body: Mapping[str, Any], template: ChatTemplate, options: ChatOptions) -> PreparedChat:
    """Validate a chat request body and render its prompt.

    Raises ChatError: llama-server's status and text for a request it refuses, and 500 when the template raises.
    """
    raw_tools = body.get("tools")
    choice = parse_tool_choice(body)
    if not options.jinja:
        _check_without_jinja(raw_tools, choice)
    schema, is_strict, grammar = constraint_of(body)
    messages = parse_messages(check_messages(body))
    tools = parse_tools(raw_tools)
    tool_choice = check_tool_choice(choice, tools)
    continuation, add_generation_prompt = _continuation(body, messages, options)
    reasoning_format = _reasoning_format(body, options)
    tools_active = bool(tools) and tool_choice != "none"
    if tools_active and body.get("grammar") is not None:
        raise ChatError(400, "Cannot use custom grammar constraints with tools.")

    template = template.for_request(bool(tools))
    enable_thinking, kwargs = _thinking(body, template, options)
    history = messages[:-1] if continuation else messages
    rendered = _Rendered(template, options, history, tools, enable_thinking, kwargs)
    prompt, generation_prompt, parse_prefix = rendered.prompt(add_generation_prompt, continuation)

    n_probs = _n_probs(body, bool(tools))
    parsing = options.jinja and not options.skip_chat_parsing
    parse_tools_now = parsing and tools_active and template.call_format != "content_only"
    allow_bare_function = template.call_format == "qwen_xml" and not template.has_think_tags
    parallel = field(body, "parallel_tool_calls", bool, template.caps["supports_parallel_tool_calls"])
    thinking_open = _ends_in_thoughts(prompt, parse_prefix)
    wanted = Wanted(
        schema=schema,
        is_strict=is_strict,
        grammar=grammar,
        tools=tuple(_callable_tools(tools, choice)) if tools_active and parsing else (),
        must_call=tools_active and parsing and tool_choice in ("required", "named"),
        form=template.call_format,
        parallel=parallel,
        bare=allow_bare_function,
    )
    return PreparedChat(
        prompt=prompt,
        format=template.call_format if parsing else "content_only",
        chat_format="peg-native" if options.jinja else "Content-only",
        generation_prompt=generation_prompt,
        parse_prefix=parse_prefix if parsing else "",
        thinking_open=thinking_open,
        supports_thinking=options.jinja and template.has_think_tags,
        enable_thinking=enable_thinking,
        extract_reasoning=parsing and template.has_think_tags and reasoning_format != "none",
        reasoning_format=reasoning_format,
        skip_leading_space=options.jinja and (options.skip_chat_parsing or template.has_think_tags or parse_tools_now
                                              or template.call_format == "qwen_xml"),
        allow_bare_function=allow_bare_function,
        tools=tools,
        tool_choice=tool_choice,
        parse_tools=parse_tools_now,
        has_unknown_calls=parsing and tools_active and template.call_format == "content_only",
        parallel_tool_calls=parallel,
        prefill_content=continuation.content if continuation and continuation.part == "content" else "",
        prefill_reasoning=continuation.reasoning if continuation else "",
        hide_prefill=bool(continuation and continuation.explicit) and not field(body, "echo", bool, False),
        n_probs=n_probs,
        messages=rendered.history,
        grammar=answer_grammar(
            wanted,
            thinking_open=thinking_open,
            may_think=options.jinja and template.has_think_tags and enable_thinking and "</think>" not in parse_prefix,
        ),
    )


def _check_without_jinja(raw_tools: Any, choice: str | dict[str, Any]) -> None:
    if isinstance(raw_tools, list) and raw_tools:
        raise ChatError(500, "tools param requires --jinja flag", "server_error")
    if choice != "auto":
        raise ChatError(500, "tool_choice param requires --jinja flag", "server_error")


def _callable_tools(tools: list[dict[str, Any]], choice: str | dict[str, Any]) -> list[dict[str, Any]]:
    """All of them, or the one that the request names."""
    if not isinstance(choice, dict):
        return tools
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    return [tool for tool in tools if tool["function"]["name"] == name]


class _Rendered:
    """The template applied to one history, with the text that opens the answer's turn."""

    def __init__(self, template: ChatTemplate, options: ChatOptions, history: list[dict[str, Any]],
                 tools: list[dict[str, Any]], enable_thinking: bool, kwargs: Mapping[str, Any]) -> None:
        self._template = template
        self._options = options
        self._tools = tools
        self._enable_thinking = enable_thinking
        self._kwargs = kwargs
        if options.jinja:
            self.history = for_template(history, template)
        else:
            self.history = [{"role": message["role"], "content": plain_text(message["content"], "\n")}
                            for message in history]

    def _render(self) -> tuple[str, str]:
        """The prompt without and with the opening of the answer's turn."""
        if not self._options.jinja:
            name = self._template.plain_format
            if name is None:
                raise ChatError(500, "this custom template is not supported, try using --jinja", "server_error")
            return render_plain(name, self.history, False), render_plain(name, self.history, True)
        try:
            closed, opened = self._template.render_turn(self.history, self._tools, self._enable_thinking, self._kwargs)
        except TemplateError as error:
            raise ChatError(500, str(error), "server_error") from error
        return self._without_ends(closed), self._without_ends(opened)

    def _without_ends(self, text: str) -> str:
        """Without the tokens that the tokenizer adds."""
        bos, eos = self._template.bos_token, self._template.eos_token
        if self._options.add_bos and bos:
            text = text.removeprefix(bos)
        if self._options.add_eos and eos:
            text = text.removesuffix(eos)
        return text

    def prompt(self, add_generation_prompt: bool, continuation: _Continuation | None) -> tuple[str, str, str]:
        """(prompt, generation prompt, the part of it that the parser reads)."""
        closed, opened = self._render()
        opening = opened[_common_length(closed, opened):]
        cut = opening.find("<think>") if self._options.jinja else -1
        turn = opening if cut < 0 else opening[:cut]
        if continuation is None:
            return (opened if add_generation_prompt else closed), opening, opening[len(turn):]
        # the plain formats have no prefill of their own: the message is opened the same way
        prefill = self._prefill(continuation)
        return closed + turn + prefill, turn + prefill, prefill

    def _prefill(self, continuation: _Continuation) -> str:
        text = ""
        if self._options.jinja and self._template.has_think_tags:
            text = "<think>\n" + continuation.reasoning
            if continuation.part == "content":
                text += "\n</think>\n\n"
        return text + (continuation.content if continuation.part == "content" else "")


def _common_length(first: str, second: str) -> int:
    """Length of the longest common beginning."""
    if second.startswith(first):
        return len(first)
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _ends_in_thoughts(prompt: str, parse_prefix: str) -> bool:
    return prompt.endswith(parse_prefix) and parse_prefix.rfind("<think>") > parse_prefix.rfind("</think>")


def _continuation(body: Mapping[str, Any], messages: list[dict[str, Any]],
                  options: ChatOptions) -> tuple[_Continuation | None, bool]:
    """The message to continue, if any, and whether the prompt gets a new generation prompt."""
    add_generation_prompt = field(body, "add_generation_prompt", bool, True)
    wanted = body.get("continue_final_message")
    explicit = wanted is True or wanted in ("content", "reasoning_content")
    last_is_assistant = bool(messages) and messages[-1]["role"] == "assistant"
    if not explicit:
        if not (options.prefill_assistant and last_is_assistant):
            return None, add_generation_prompt
        if len(messages) >= 2 and messages[-2]["role"] == "assistant":
            raise ChatError(400, "Cannot have 2 or more assistant messages at the end of the list.")
        add_generation_prompt = False
    if add_generation_prompt:
        raise ChatError(400, "Cannot set both add_generation_prompt and continue_final_message to true.")
    if not last_is_assistant:
        raise ChatError(400, "Cannot continue the final message: it is not an assistant message.")
    last = dict(messages[-1])
    split_thoughts(last)
    if last.get("tool_calls"):
        raise ChatError(400, "Cannot continue an assistant message that contains tool calls.")
    content, reasoning = plain_text(last["content"], "\n\n"), last.get("reasoning_content", "")
    part = "reasoning" if wanted == "reasoning_content" or (
        wanted in (None, True, False) and reasoning and not content) else "content"
    return _Continuation(part, content, reasoning, explicit), False


def _reasoning_format(body: Mapping[str, Any], options: ChatOptions) -> str:
    name = body.get("reasoning_format")
    if name is None:
        return options.reasoning_format
    if not isinstance(name, str) or name not in REASONING_FORMATS:
        raise ChatError(500, f"Unknown reasoning format: {name}", "server_error")
    return name


def _thinking(body: Mapping[str, Any], template: ChatTemplate, options: ChatOptions) -> tuple[bool, dict[str, Any]]:
    """(enable_thinking, template kwargs). Later wins: flag, command-line kwargs, request kwargs, effort "none"."""
    enabled = options.reasoning == "on" or (options.reasoning == "auto" and template.supports_thinking)
    kwargs: dict[str, Any] = {}
    if template.caps["supports_preserve_reasoning"]:
        kwargs["preserve_reasoning"] = options.reasoning_preserve
    if options.reasoning_effort and options.reasoning_effort != "default":
        kwargs["reasoning_effort"] = options.reasoning_effort
    kwargs |= options.template_kwargs
    kwargs |= field(body, "chat_template_kwargs", dict, {})
    wanted = kwargs.pop("enable_thinking", None)
    if isinstance(wanted, bool):
        enabled = wanted
    elif isinstance(wanted, str):
        raise ChatError(400, 'invalid type for "enable_thinking" (expected boolean, got string)')
    effort = field(body, "reasoning_effort", str, "")
    if effort == "none":
        enabled = False
        kwargs.pop("reasoning_effort", None)
    elif effort:
        kwargs["reasoning_effort"] = effort
    return enabled, kwargs


def _n_probs(body: Mapping[str, Any], has_tools: bool) -> int | None:
    if field(body, "logprobs", bool, False):
        if has_tools and field(body, "stream", bool, False):
            raise ChatError(400, "logprobs is not supported with tools + stream")
        return field(body, "top_logprobs", int, 20)
    if body.get("top_logprobs") is not None:
        raise ChatError(400, "top_logprobs requires logprobs to be set to true")
    return None
