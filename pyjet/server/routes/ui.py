"""The web page: the built-in one, or the user's static files. Needs no model, so it works while loading."""

from __future__ import annotations

import os
from urllib.parse import unquote

from flask import Flask, Request, Response, request
from werkzeug.security import safe_join
from werkzeug.utils import send_file

from pyjet.server import auth
from pyjet.server.errors import not_found
from pyjet.server.options import ServerOptions
from pyjet.server.static_page import StaticFile, static_files

_PAGE_HEADERS = {
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Opener-Policy": "same-origin",
    # nothing from elsewhere, nothing inline, and no other site may put the page into a frame
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


def register(app: Flask, options: ServerOptions) -> None:
    """Add the page and its files, or the files of ``--path``."""
    if options.ui and options.path:
        _add_folder(app, os.path.abspath(options.path))
    elif options.ui:
        for path, file in static_files().items():
            app.add_url_rule(path, f"ui:{path}", lambda path=path, file=file: _answer(path, file))
    else:
        app.add_url_rule("/sw.js", "ui_worker", _worker)


def serves(request: Request, options: ServerOptions) -> bool:
    """Whether the request is for the page or its files: public, and answered while the model loads."""
    if request.method not in ("GET", "HEAD"):
        return False
    if options.ui and not options.path:
        return request.path in static_files()
    return request.path in auth.PAGE_PATHS


def _answer(path: str, file: StaticFile) -> Response:
    zipped = request.accept_encodings["gzip"] > 0
    tag = f"{file.tag}-gzip" if zipped else file.tag
    headers = {"ETag": f'"{tag}"', "Cache-Control": file.cache_control, "Vary": "Accept-Encoding"}
    headers["X-Content-Type-Options"] = "nosniff"
    if path in ("/", "/index.html"):
        headers |= _PAGE_HEADERS
    if request.if_none_match.contains_weak(tag):
        return Response(b"", 304, headers)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(file.compressed if zipped else file.content, 200, headers, content_type=file.content_type)


def _worker() -> Response:
    """Clears up what an earlier page's service worker left at this address."""
    return _answer("/sw.js", static_files()["/sw.js"])


def _add_folder(app: Flask, root: str) -> None:
    def worker() -> Response:
        return _file(root, "sw.js") if os.path.isfile(os.path.join(root, "sw.js")) else _worker()

    app.add_url_rule("/", "ui_index", lambda: _file(root, "index.html"))
    app.add_url_rule("/sw.js", "ui_worker", worker)
    app.add_url_rule("/<path:name>", "ui_file", lambda name: _file(root, unquote(name)))


def _file(root: str, name: str) -> Response:
    if name.endswith("/"):
        name += "index.html"
    path = safe_join(root, name)
    if path is None or "\0" in path or not os.path.isfile(path):
        raise not_found()
    real_root = os.path.realpath(root)
    if os.path.commonpath([os.path.realpath(path), real_root]) != real_root:  # a link that leads outside
        raise not_found()
    response = send_file(path, request.environ, conditional=True)
    response.direct_passthrough = False
    return Response(response.get_data(), response.status_code, response.headers)
