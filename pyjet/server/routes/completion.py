"""Text completion: llama-server's own endpoint and OpenAI's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.answer import answer
from pyjet.server.generation import Job
from pyjet.server.json_fields import object_body
from pyjet.server.params import check_supported, parse_params
from pyjet.server.prompts import read_prompts
from pyjet.server.results import NativeFormat, TextFormat

if TYPE_CHECKING:
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add ``/completion``, ``/completions`` (both native) and ``/v1/completions``."""

    def complete(form_class: type[NativeFormat] | type[TextFormat]) -> Response:
        body = object_body(jsonio.request_value())
        prompts = read_prompts(body, service.tokenizer)
        params = parse_params(body, service.options, service.tokenizer, n_slots=service.n_slots)
        check_supported(params)
        form = form_class(service, params)
        form.start(prompts)
        return answer(params, Job(service, params, prompts), form)

    def native() -> Response:
        return complete(NativeFormat)

    def openai() -> Response:
        return complete(TextFormat)

    for path in ("/completion", "/completions"):
        app.add_url_rule(path, f"completion:{path}", native, methods=["POST"])
    app.add_url_rule("/v1/completions", "openai_completions", openai, methods=["POST"])
