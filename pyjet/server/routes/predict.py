"""The route of prediction platforms: a list of requests in one body, each for a named endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from pyjet.server import jsonio
from pyjet.server.errors import ApiError, invalid_request, not_found, server_error

if TYPE_CHECKING:
    from pyjet.server.service import Service

MAX_INSTANCES = 128
_FORMAT = "@requestFormat"
_DISCONNECTED = "waitress.client_disconnected"


def register(app: Flask, service: Service) -> None:
    """Add the routes that ``AIP_MODE=PREDICTION`` names, if it is set."""
    options = service.options
    known = {rule.rule for rule in app.url_map.iter_rules()}
    if options.health_route is not None and options.health_route not in known:
        app.add_url_rule(options.health_route, "aip_health", app.view_functions["get:/health"], methods=["GET"])
    if options.predict_route is not None:
        paths = _paths_by_name(app)
        app.add_url_rule(options.predict_route, "aip_predict", lambda: _predict(app, paths), methods=["POST"])


def _paths_by_name(app: Flask) -> dict[str, str]:
    """Paths of all POST endpoints by path and in camel case: ``chatCompletions`` is ``/chat/completions``."""
    paths = [rule.rule for rule in app.url_map.iter_rules() if "POST" in (rule.methods or ()) and "<" not in rule.rule]
    names: dict[str, str] = {path: path for path in paths}
    for path in paths:
        first, *others = path.removeprefix("/v1").strip("/").replace("-", "/").replace("_", "/").split("/")
        names.setdefault(first + "".join(word.capitalize() for word in others), path)
    return names


def _predict(app: Flask, paths: dict[str, str]) -> Response:
    body = jsonio.request_value()
    instances = body.get("instances") if isinstance(body, dict) else None
    if not isinstance(instances, list):
        raise invalid_request("request body must include an array field named instances")
    if len(instances) > MAX_INSTANCES:
        raise invalid_request(f"instances may hold {MAX_INSTANCES} requests at most, got {len(instances)}")
    disconnected = request.environ.get(_DISCONNECTED)
    return jsonio.response({"predictions": [_one(app, paths, instance, disconnected) for instance in instances]})


def _one(app: Flask, paths: dict[str, str], instance: Any, disconnected: Any) -> Any:
    """The answer to one request, or its error object."""
    try:
        if not isinstance(instance, dict):
            raise invalid_request("each instance must be an object")
        path = paths.get(str(instance.get(_FORMAT)))
        if path is None:
            raise invalid_request(f"{_FORMAT} names no endpoint: {instance.get(_FORMAT)!r}")
        fields = {name: value for name, value in instance.items() if name != _FORMAT}
        data = jsonio.dump({**fields, "stream": False})
        overrides = {_DISCONNECTED: disconnected} if disconnected is not None else {}
        with app.test_request_context(path, method="POST", data=data, environ_overrides=overrides):
            return jsonio.parse(app.ensure_sync(app.dispatch_request)().get_data())
    except ApiError as error:
        return error.body()
    except HTTPException:
        return not_found().body()
    except Exception as error:
        return server_error(f"internal error: {type(error).__name__}: {error}").body()
