"""Requests that need the model keep a sleeping engine awake, until their answer is out."""

from __future__ import annotations

from flask import Flask, Response, g, request

from pyjet.server.errors import ApiError
from pyjet.server.sleeping_engine import SleepingEngine

# answered from what is known without the model, so that watching a server does not keep it awake
_WITHOUT_MODEL = frozenset({
    "get:/health", "get:/v1/health", "get:/models", "get:/v1/models", "get:/props", "get:/metrics", "aip_health",
})  # fmt: skip


def register(app: Flask, engine: SleepingEngine) -> None:
    """Add the hooks; the checks of keys and of paths come first."""
    app.before_request(lambda: _hold(engine))
    app.after_request(lambda response: _release_at_end(engine, response))


def _hold(engine: SleepingEngine) -> None:
    rule = request.url_rule
    if rule is None or rule.endpoint in _WITHOUT_MODEL or rule.endpoint.startswith(("ui:", "ui_")):
        return
    try:
        engine.hold()
    except Exception as error:
        raise ApiError(503, f"the model could not be loaded again: {error}") from error
    g.holds_engine = True


def _release_at_end(engine: SleepingEngine, response: Response) -> Response:
    if g.pop("holds_engine", False):
        response.call_on_close(engine.release)
    return response
