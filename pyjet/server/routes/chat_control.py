"""``/v1/chat/completions/control``: tell a chat that is being answered what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.errors import invalid_request

if TYPE_CHECKING:
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add the route. What cannot be done is told with status 200, as at llama-server."""

    def control() -> Response:
        body = jsonio.request_value()
        fields = body if isinstance(body, dict) else {}
        chat_id = fields.get("id")
        if not isinstance(chat_id, str) or not chat_id:
            raise invalid_request("missing completion id")
        if fields.get("action") != "reasoning_end":
            raise invalid_request("unknown control action")
        return jsonio.response(_end_thoughts(service, chat_id))

    app.add_url_rule("/v1/chat/completions/control", "chat_control", control, methods=["POST"])


def _end_thoughts(service: Service, chat_id: str) -> dict[str, Any]:
    job = service.active_chats.find(chat_id)
    if job is None:
        return {"success": False, "message": "no active completion for this id"}
    if not job.params.reasoning_control:
        return {"success": False, "message": "reasoning control not enabled for this completion"}
    job.end_thoughts()
    return {"success": True}
