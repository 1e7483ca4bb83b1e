"""What browsers on other origins may do."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Request, Response

from pyjet.server.options import ServerOptions

_LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def allowed_origin(origin: str, options: ServerOptions) -> str | None:
    """Value of ``Access-Control-Allow-Origin`` for a request's Origin (may be empty); None sends no header."""
    setting = options.cors_origins.strip()
    if setting == "*" and options.cors_credentials:
        return origin
    if setting == "localhost":
        return origin if _is_local(origin) else None
    if "," in setting:
        return origin if origin in [item.strip() for item in setting.split(",")] else None
    return setting


def add_headers(request: Request, response: Response, options: ServerOptions) -> None:
    """Headers of every answer; a preflight (OPTIONS) gets the rest as well."""
    origin = allowed_origin(request.headers.get("Origin", ""), options)
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
    if request.method == "OPTIONS":
        response.headers["Access-Control-Allow-Credentials"] = "true" if options.cors_credentials else "false"
        response.headers["Access-Control-Allow-Methods"] = options.cors_methods
        response.headers["Access-Control-Allow-Headers"] = options.cors_headers


def _is_local(origin: str) -> bool:
    try:
        return urlsplit(origin).hostname in _LOCAL_HOSTS
    except ValueError:
        return False
