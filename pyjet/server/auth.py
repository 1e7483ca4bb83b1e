"""API keys: which requests need one, and whether it is right."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from flask import Request

PAGE_PATHS = frozenset(
    {"/", "/index.html", "/sw.js", "/manifest.webmanifest", "/_app/version.json", "/build.json"}
)
"""Where the web page is, whosever it is; the other files of the built-in one are public, too (routes/ui.py)."""

PUBLIC_PATHS = PAGE_PATHS | {"/health", "/v1/health"}
"""Paths without the API prefix that need no key: load balancers and the web page depend on them."""


def is_allowed(request: Request, keys: Iterable[str]) -> bool:
    """Whether the request may go on. ``keys`` is what the user configured; none means open to all."""
    wanted = [key.encode() for key in keys]
    if not wanted or request.path in PUBLIC_PATHS:
        return True
    given = given_key(request)
    # compare with every key, in constant time
    return sum(hmac.compare_digest(given, key) for key in wanted) > 0


def given_key(request: Request) -> bytes:
    """The key of ``Authorization`` (``Bearer`` is optional), else of ``X-Api-Key``."""
    header = request.headers.get("Authorization", "") or request.headers.get("X-Api-Key", "")
    return header.removeprefix("Bearer ").encode("latin-1", "replace")
