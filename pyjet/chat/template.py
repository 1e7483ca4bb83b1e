"""One model's chat template: rendering, and what the template is able to express."""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import meta

from pyjet.chat import sandbox
from pyjet.chat.answer_opening import FLAG, OpeningFlag, opens_at_end
from pyjet.chat.builtin import builtin_template, plain_format
from pyjet.chat.caps import probe_caps, probe_late_system
from pyjet.chat.types import CallFormat

__all__ = ["ChatTemplate", "TemplateError", "builtin_template"]


class TemplateError(Exception):
    """A template that does not compile or raised while rendering; the last line is `Error: Jinja Exception: …`."""


class ChatTemplate:
    """A compiled chat template.

    `tool_use_source` is the GGUF's `tokenizer.chat_template.tool_use` variant, used when a request has tools.
    Raises TemplateError when a source is not valid Jinja. Instances are immutable and safe to share between threads.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "",
                 tool_use_source: str | None = None) -> None:
        self.source = source
        self.bos_token = bos_token
        self.eos_token = eos_token
        environment = sandbox.make_environment()
        try:
            self._template = environment.from_string(source)
            tree = environment.parse(source)
            self._opens_at_end = opens_at_end(tree)
            self._variables = meta.find_undeclared_variables(tree)
        except jinja2.TemplateError as error:
            raise TemplateError(_describe(error, source)) from error
        self._tool_use = (ChatTemplate(tool_use_source, bos_token=bos_token, eos_token=eos_token)
                          if tool_use_source else None)

    def for_request(self, has_tools: bool) -> ChatTemplate:
        """The variant that renders a request: `tool_use` when there are tools and the model brings one."""
        return self._tool_use if has_tools and self._tool_use is not None else self

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None,
               add_generation_prompt: bool = True, enable_thinking: bool = True,
               kwargs: Mapping[str, Any] | None = None) -> str:
        """Prompt text. `kwargs` become template variables, unknown ones included. Raises TemplateError."""
        variables = self._request_variables(messages, tools, enable_thinking, kwargs)
        if add_generation_prompt:
            variables[FLAG] = True
        pieces: list[str] = []
        self._run(pieces, variables)
        return "".join(pieces)

    def render_turn(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None,
                    enable_thinking: bool = True, kwargs: Mapping[str, Any] | None = None) -> tuple[str, str]:
        """`render` without and with a generation prompt; most templates need to run only once for both."""
        if not self._opens_at_end or FLAG in (kwargs or {}):
            return (self.render(messages, tools, False, enable_thinking, kwargs),
                    self.render(messages, tools, True, enable_thinking, kwargs))
        variables = self._request_variables(messages, tools, enable_thinking, kwargs)
        pieces: list[str] = []
        variables[FLAG] = flag = OpeningFlag(pieces)
        self._run(pieces, variables)
        return "".join(pieces[: flag.n_before]), "".join(pieces)

    def _request_variables(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None,
                           enable_thinking: bool, kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        now = datetime.datetime.now()
        variables: dict[str, Any] = {
            "messages": list(messages),
            "bos_token": self.bos_token,
            "eos_token": self.eos_token,
            "datetime": now.strftime("%b %d %Y"),
            "date_string": now.strftime("%d %b %Y"),
            **(kwargs or {}),
            "enable_thinking": enable_thinking,
        }
        if tools:
            variables["tools"] = list(tools)
        _expand_aliases(variables)
        return variables

    def _run(self, pieces: list[str], variables: Mapping[str, Any]) -> None:
        try:
            sandbox.run_into(pieces, self._template, variables)
        except Exception as error:  # a template can provoke anything: TypeError, RecursionError, …
            raise TemplateError(_describe(error, self.source)) from error

    @cached_property
    def caps(self) -> dict[str, bool]:
        """`chat_template_caps` of /props, found by rendering small conversations."""
        caps = probe_caps(self._try_render)
        caps["supports_reasoning_effort"] = bool(self._variables & {"reasoning_effort", "reasoning_strength"})
        return dict(sorted(caps.items()))

    @cached_property
    def allows_late_system(self) -> bool:
        """A system message after the first turn is rendered where it stands."""
        return probe_late_system(self._try_render)

    @property
    def supports_thinking(self) -> bool:
        """The template knows thoughts."""
        return any(mark in self.source for mark in ("<think>", "</think>", "<|START_THINKING|>", "enable_thinking"))

    @property
    def has_think_tags(self) -> bool:
        """Thoughts stand between `<think>` and `</think>`, the form the parser can extract."""
        return "<think>" in self.source or "</think>" in self.source

    @property
    def call_format(self) -> CallFormat:
        """How the model writes tool calls, judged by the marks in the template text."""
        if "<tool_call>" not in self.source:
            return "content_only"
        return "qwen_xml" if "<function=" in self.source and "<parameter=" in self.source else "hermes_json"

    @property
    def plain_format(self) -> str | None:
        """The built-in format that stands in for this template with `--no-jinja`."""
        return plain_format(self.source)

    def _try_render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None,
                    kwargs: Mapping[str, Any] | None = None) -> str | None:
        try:
            return self.render(messages, tools, kwargs=kwargs)
        except TemplateError:
            return None


def _expand_aliases(variables: dict[str, Any]) -> None:
    """Two settings reach a template under every name that model families gave them."""
    preserve = variables.get("preserve_reasoning")
    if isinstance(preserve, bool):
        variables.setdefault("preserve_thinking", preserve)
        for name in ("clear_thinking", "truncate_history_thinking", "drop_thinking"):
            variables.setdefault(name, not preserve)
    effort = variables.get("reasoning_effort")
    if isinstance(effort, str) and effort:
        variables.setdefault("reasoning_strength", effort)


def _describe(error: BaseException, source: str) -> str:
    """llama-server's error layout: where it happened, the line, then the cause on the last line."""
    line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else _template_line(error)
    text = str(error) if isinstance(error, sandbox.TemplateRaised) else f"{str(error) or type(error).__name__}"
    where = ""
    if line is not None:
        lines = source.splitlines()
        excerpt = lines[line - 1].strip()[:200] if 0 < line <= len(lines) else ""
        where = f"While executing template at line {line} in source:\n{excerpt}\n"
    return f"\n------------\n{where}Error: Jinja Exception: {text}"


def _template_line(error: BaseException) -> int | None:
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == "<template>":
            line = frame.lineno
    return line
