"""Code completion in the middle of a file: ``/infill``, with answers like those of ``/completion``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.infill_prompt import InfillLimits, infill_prompt
from pyjet.server.json_fields import object_body
from pyjet.server.routes.completion import answer_native

if TYPE_CHECKING:
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add ``/infill``; it answers 501 when the vocabulary has no fill-in-the-middle tokens."""
    options = service.options
    limits = InfillLimits(options.batch_size, service.n_ctx_slot, options.n_predict, options.spm_infill)

    def infill() -> Response:
        body = object_body(jsonio.request_value())
        return answer_native(service, body, [infill_prompt(body, service.tokenizer, limits)])

    app.add_url_rule("/infill", "infill", infill, methods=["POST"])
