"""The web page: one small built-in page, or the user's static files. Needs no model, so it works while loading."""

from __future__ import annotations

import hashlib
import os
from importlib.resources import files

from flask import Flask, Request, Response, request
from werkzeug.security import safe_join
from werkzeug.utils import send_file

from pyjet.server import auth
from pyjet.server.errors import not_found
from pyjet.server.options import ServerOptions

_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_WORKER = "self.addEventListener('install', () => self.skipWaiting());\n"
_UNREGISTER = (
    "self.addEventListener('install', () => self.skipWaiting());\n"
    "self.addEventListener('activate', () => self.registration.unregister());\n"
)
_MANIFEST = '{"name":"pyjet","short_name":"pyjet","start_url":"./","display":"standalone","icons":[]}'
_VERSION = '{"version":"1"}'

_ASSETS = {
    "/sw.js": (_WORKER, "text/javascript; charset=utf-8"),
    "/manifest.webmanifest": (_MANIFEST, "application/manifest+json"),
    "/_app/version.json": (_VERSION, "application/json; charset=utf-8"),
    "/build.json": (_VERSION, "application/json; charset=utf-8"),
}


def register(app: Flask, options: ServerOptions) -> None:
    """Add the page and its assets, or the files of ``--path``."""
    app.add_url_rule("/sw.js", "ui_worker", lambda: _asset("/sw.js", options))
    if not options.ui:
        return
    if options.path:
        root = os.path.abspath(options.path)
        app.add_url_rule("/", "ui_index", lambda: _file(root, "index.html"))
        app.add_url_rule("/<path:name>", "ui_file", lambda name: _file(root, name))
        return
    for path in ("/", "/index.html"):
        app.add_url_rule(path, f"ui_page:{path}", _page)
    for path in _ASSETS.keys() - {"/sw.js"}:
        app.add_url_rule(path, f"ui_asset:{path}", lambda path=path: _asset(path, options))


def serves(request: Request, options: ServerOptions) -> bool:
    """Whether the request is for the built-in page or its assets: public, and answered while the model loads."""
    if request.method not in ("GET", "HEAD"):
        return False
    is_page = options.ui and request.path in ("/", "/index.html")
    return is_page or (request.path in auth.PUBLIC_PATHS and request.path in _ASSETS)


def _page() -> Response:
    source = files("pyjet.server").joinpath("static").joinpath("index.html").read_bytes()
    tag = f'"{hashlib.sha256(source).hexdigest()[:16]}"'
    headers = {**_PAGE_HEADERS, "ETag": tag}
    if request.headers.get("If-None-Match") == tag:
        return Response(b"", 304, headers)
    return Response(source, 200, headers, content_type="text/html; charset=utf-8")


def _asset(path: str, options: ServerOptions) -> Response:
    text, content_type = _ASSETS[path]
    if path == "/sw.js" and (not options.ui or options.path):
        text = _UNREGISTER
    return Response(text, 200, {"Cache-Control": "no-cache"}, content_type=content_type)


def _file(root: str, name: str) -> Response:
    path = safe_join(root, name)
    if path is None or not os.path.isfile(path):
        raise not_found()
    real_root = os.path.realpath(root)
    if os.path.commonpath([os.path.realpath(path), real_root]) != real_root:  # a link that leads outside
        raise not_found()
    response = send_file(path, request.environ, conditional=True)
    response.direct_passthrough = False
    return Response(response.get_data(), response.status_code, response.headers)
