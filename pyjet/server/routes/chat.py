"""Chat completion in OpenAI's form, with tools and reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Flask, Response

from pyjet.chat.messages import prepare_chat
from pyjet.chat.template import TemplateError
from pyjet.chat.types import ChatError, ChatOptions, PreparedChat
from pyjet.server import jsonio
from pyjet.server.answer import answer
from pyjet.server.answer_rules import chat_rules, with_defaults
from pyjet.server.chat_results import ChatFormat
from pyjet.server.completion_params import CompletionParams
from pyjet.server.errors import ApiError
from pyjet.server.generation import Job
from pyjet.server.json_fields import INT32_MAX, read_int, read_str
from pyjet.server.params import parse_params
from pyjet.server.thought_budget import END, START, ThoughtRule

if TYPE_CHECKING:
    from pyjet.server.service import Service

_UNKNOWN_CALLS = (
    "the chat template shows no form of tool calls that is known here (Qwen's XML, or JSON between <tool_call> tags): "
    "an answer that is nothing but calls in JSON is read as such, all other forms stay in the content; use "
    "--chat-template-file for a template of the known forms"
)


def register(app: Flask, service: Service) -> None:
    """Add ``/chat/completions`` and ``/chat/completions/input_tokens``, both also below ``/v1``."""

    def complete() -> Response:
        chat = chat_job(service, jsonio.request_value())
        form = ChatFormat(service, chat.params, chat.prepared)
        form.end_choice = chat.job.end_choice
        service.active_chats.add(form.id, chat.job)
        return answer(service, chat.params, chat.job, form)

    def input_tokens() -> Response:
        n_tokens = count_tokens(service, jsonio.request_value())
        return jsonio.response({"input_tokens": n_tokens, "object": "response.input_tokens"})

    for prefix in ("", "/v1"):
        path = f"{prefix}/chat/completions"
        app.add_url_rule(path, f"chat:{path}", complete, methods=["POST"])
        app.add_url_rule(f"{path}/input_tokens", f"chat_tokens:{path}", input_tokens, methods=["POST"])


class ChatJob(NamedTuple):
    """A chat request that can run. ``n_prompt``: tokens of its prompt."""

    prepared: PreparedChat
    params: CompletionParams
    job: Job
    n_prompt: int


def chat_job(service: Service, body: Any) -> ChatJob:
    """Everything that a chat request needs, checked. ApiError with llama-server's status and text."""
    prepared = prepare(service, body)
    params = chat_params(service, body, prepared)
    if prepared.has_unknown_calls:
        service.notices.warn(_UNKNOWN_CALLS)
    prompt = encode_prompt(service, prepared)
    return ChatJob(prepared, params, Job(service, params, [prompt]), len(prompt))


def count_tokens(service: Service, body: Any) -> int:
    """Prompt tokens of a chat request."""
    return len(encode_prompt(service, prepare(service, body)))


def chat_options(service: Service) -> ChatOptions:
    """The command line's part of a chat request."""
    options = service.options
    return ChatOptions(
        jinja=options.jinja,
        template_kwargs=options.chat_template_kwargs,
        reasoning=options.reasoning,
        reasoning_format=options.reasoning_format,
        reasoning_effort=None if options.reasoning_effort == "default" else options.reasoning_effort,
        reasoning_preserve=options.reasoning_preserve,
        prefill_assistant=options.prefill_assistant,
        skip_chat_parsing=options.skip_chat_parsing,
        add_bos=service.tokenizer.add_bos,
        add_eos=service.tokenizer.add_eos,
    )


def prepare(service: Service, body: Any) -> PreparedChat:
    """Validate and render a chat request; ApiError with llama-server's status and text."""
    try:
        wanted = with_defaults(body if isinstance(body, dict) else {}, service.options)
        return prepare_chat(wanted, service.chat_template, chat_options(service))
    except ChatError as error:
        raise ApiError(error.status, error.message, error.type) from error
    except TemplateError as error:
        raise ApiError(500, str(error)) from error


def encode_prompt(service: Service, prepared: PreparedChat) -> list[int]:
    """Tokens of the rendered prompt; special tokens in it are recognised."""
    return service.tokenizer.encode(prepared.prompt, add_special=True)


def chat_params(service: Service, body: Mapping[str, Any], prepared: PreparedChat) -> CompletionParams:
    """Sampling and output settings of a chat request, and the grammar of its answer. ApiError 400 for a wrong field."""
    fields = dict(body)
    if prepared.n_probs is not None:
        fields["n_probs"] = prepared.n_probs
    fields |= {"reasoning_format": prepared.reasoning_format, "chat_format": None}
    fields["grammar"] = with_defaults(body, service.options).get("grammar") or ""  # not the default beside tools
    params = parse_params(fields, service.options, service.tokenizer, n_slots=service.n_slots)
    params.chat_format = prepared.chat_format
    params.generation_prompt = prepared.generation_prompt
    params.preserved_tokens = _preserved_tokens(service, prepared)
    params.thoughts = _thought_rule(service, fields, prepared)
    chat_rules(params, prepared, service.tokenizer)
    return params


def _preserved_tokens(service: Service, prepared: PreparedChat) -> list[int]:
    """Ids of the tags that the parser must see, whatever kind of token they are in this vocabulary."""
    tags = ["<think>", "</think>"] if prepared.supports_thinking else []
    if prepared.format != "content_only":
        tags += ["<tool_call>", "</tool_call>"]
    return sorted(token for tag in tags if (token := service.tokenizer.token_id(tag)) is not None)


def _thought_rule(service: Service, body: Mapping[str, Any], prepared: PreparedChat) -> ThoughtRule | None:
    """How long the model may think, if there is a limit or the client wants to be able to end it."""
    options, tokenizer = service.options, service.tokenizer
    budget = read_int(body, ("reasoning_budget_tokens", "thinking_budget_tokens"), -1, -1, INT32_MAX, hard=True)
    budget = options.reasoning_budget if budget < 0 else budget
    message = read_str(body, "reasoning_budget_message", options.reasoning_budget_message)
    if not prepared.supports_thinking or (budget < 0 and body.get("reasoning_control") is not True):
        return None
    end = (*tokenizer.encode(message), *tokenizer.encode("\n" + END))
    opened = prepared.generation_prompt.rpartition(START)[2]
    return ThoughtRule(budget, end, len(tokenizer.encode(opened)) if prepared.thinking_open else -1)
