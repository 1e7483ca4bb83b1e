"""Anthropic's Messages API: ``/v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.answer import answer
from pyjet.server.anthropic_request import chat_request
from pyjet.server.anthropic_results import MessageFormat
from pyjet.server.routes.chat import chat_job, count_tokens

if TYPE_CHECKING:
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add both routes. Their errors have OpenAI's shape, as at llama-server."""

    def create() -> Response:
        chat = chat_job(service, chat_request(jsonio.request_value()))
        form = MessageFormat(service, chat.prepared, chat.n_prompt, lambda: chat.job.end_choice(0))
        return answer(service, chat.params, chat.job, form)

    def count() -> Response:
        return jsonio.response({"input_tokens": count_tokens(service, chat_request(jsonio.request_value()))})

    app.add_url_rule("/v1/messages", "messages", create, methods=["POST"])
    app.add_url_rule("/v1/messages/count_tokens", "messages_count_tokens", count, methods=["POST"])
