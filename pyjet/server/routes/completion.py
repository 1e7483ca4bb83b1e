"""Text completion: llama-server's own endpoint and OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.answer import answer
from pyjet.server.answer_rules import text_rules
from pyjet.server.generation import Job
from pyjet.server.json_fields import object_body
from pyjet.server.params import parse_params
from pyjet.server.prompts import read_prompts
from pyjet.server.results import NativeFormat, TextFormat

if TYPE_CHECKING:
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add ``/completion``, ``/completions`` (both native) and ``/v1/completions``."""

    def native() -> Response:
        body = object_body(jsonio.request_value())
        return answer_native(service, body, read_prompts(body, service.tokenizer))

    def openai() -> Response:
        body = object_body(jsonio.request_value())
        return _answer(service, body, read_prompts(body, service.tokenizer), TextFormat)

    for path in ("/completion", "/completions"):
        app.add_url_rule(path, f"completion:{path}", native, methods=["POST"])
    app.add_url_rule("/v1/completions", "openai_completions", openai, methods=["POST"])


def answer_native(service: Service, body: Mapping[str, Any], prompts: list[list[int]]) -> Response:
    """Continue the prompts as the fields of ``body`` ask; the answer has the form of ``/completion``."""
    return _answer(service, body, prompts, NativeFormat)


def _answer(
    service: Service,
    body: Mapping[str, Any],
    prompts: list[list[int]],
    form_class: type[NativeFormat] | type[TextFormat],
) -> Response:
    params = parse_params(body, service.options, service.tokenizer, n_slots=service.n_slots)
    text_rules(params, service.tokenizer)
    form = form_class(service, params)
    form.start(prompts)
    return answer(service, params, Job(service, params, prompts), form)
