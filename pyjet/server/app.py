"""The Flask application: order of the checks, routes, and one place that turns failures into errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from pyjet.server import auth, cors, jsonio, waking
from pyjet.server.errors import ApiError, invalid_api_key, loading_model, not_found, server_error
from pyjet.server.options import ServerOptions
from pyjet.server.routes import ui

if TYPE_CHECKING:
    from pyjet.server.service import Service

MAX_BODY_BYTES = 100 * 1024 * 1024

_log = logging.getLogger(__name__)

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def create_app(service: Service | None, options: ServerOptions) -> Flask:
    """The application for a loaded model, or, with ``service`` None, the one that answers while it loads."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.config["MAX_FORM_MEMORY_SIZE"] = MAX_BODY_BYTES
    app.url_map.merge_slashes = False
    app.before_request(lambda: _check_request(service, options))
    app.after_request(lambda response: _finish_response(response, options))
    app.register_error_handler(Exception, _failure)
    app.wsgi_app = RawPaths(app.wsgi_app, options.api_prefix)  # type: ignore[method-assign]
    ui.register(app, options)
    if service is not None:
        _register_routes(app, service)
        if service.sleeper is not None:
            waking.register(app, service.sleeper)
    return app


class RawPaths:
    """Routes see the path as the client wrote it, without the API prefix.

    WSGI servers decode percent signs and merge leading slashes; llama-server answers 404 to such spellings.
    """

    def __init__(self, app: WsgiApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = _raw_path(environ)
        inside = path.startswith(self._prefix + "/")
        path = path[len(self._prefix) :]
        # werkzeug drops leading slashes, so that //health would be /health
        environ["PATH_INFO"] = path if inside and not path.startswith("//") else "/%2F" + path
        return self._app(environ, start_response)


def _raw_path(environ: dict[str, Any]) -> str:
    uri: str = environ.get("REQUEST_URI") or environ.get("PATH_INFO", "")
    if not uri.startswith("/") and "://" in uri:  # absolute form, as proxies send it
        uri = "/" + uri.split("://", 1)[1].partition("/")[2]
    return uri.partition("?")[0].partition("#")[0]


def _register_routes(app: Flask, service: Service) -> None:
    from pyjet.server.routes import (
        admin,
        anthropic,
        chat,
        chat_control,
        completion,
        embeddings,
        infill,
        predict,
        recorded_streams,
        responses,
        slot_actions,
        text,
    )

    apis = (completion, embeddings, infill, chat, chat_control, responses, anthropic, recorded_streams)
    for module in (admin, slot_actions, text, *apis, predict):
        module.register(app, service)


def _check_request(service: Service | None, options: ServerOptions) -> Response | None:
    """Preflight first, then loading (503), then the key (401); routing (404) comes after this."""
    if request.method == "OPTIONS":
        return Response(b"", 200, content_type="text/html")
    is_page = ui.serves(request, options)
    if not is_page and (service is None or service.engine.state == "loading"):
        raise loading_model()
    if not is_page and not auth.is_allowed(request, options.api_keys):
        raise invalid_api_key()
    return None


def _finish_response(response: Response, options: ServerOptions) -> Response:
    cors.add_headers(request, response, options)
    return response


def _failure(error: Exception) -> Response:
    """Every exception as an error response. Wrong methods and redirects for slashes are 404, too."""
    if isinstance(error, ApiError):
        return jsonio.error_response(not_found() if error.status == 404 else error)
    if isinstance(error, HTTPException):
        status = error.code or 500
        if status in (404, 405) or status < 400:
            return jsonio.error_response(not_found())
        return jsonio.error_response(ApiError(status, error.description or error.name))
    _log.error("unexpected failure of %s %s", request.method, request.path, exc_info=error)
    return jsonio.error_response(server_error(f"internal error: {type(error).__name__}: {error}"))
