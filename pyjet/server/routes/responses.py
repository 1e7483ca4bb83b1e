"""OpenAI's Responses API: ``/responses`` and ``/responses/input_tokens``, both also below ``/v1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.answer import answer
from pyjet.server.responses_request import chat_request
from pyjet.server.responses_results import ResponseFormat
from pyjet.server.routes.chat import chat_job, count_tokens

if TYPE_CHECKING:
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add the routes."""

    def create() -> Response:
        chat = chat_job(service, chat_request(jsonio.request_value()))
        form = ResponseFormat(service, chat.prepared, lambda: chat.job.end_choice(0))
        return answer(service, chat.params, chat.job, form)

    def input_tokens() -> Response:
        n_tokens = count_tokens(service, chat_request(jsonio.request_value()))
        return jsonio.response({"input_tokens": n_tokens, "object": "response.input_tokens"})

    for prefix in ("", "/v1"):
        path = f"{prefix}/responses"
        app.add_url_rule(path, f"responses:{path}", create, methods=["POST"])
        app.add_url_rule(f"{path}/input_tokens", f"responses_tokens:{path}", input_tokens, methods=["POST"])
