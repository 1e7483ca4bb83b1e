"""The files of the built-in page, ready to be sent: with types, tags for caches, and compressed.

All but the few files whose addresses are fixed lie below a folder that is named after what is in them, so that
browsers can keep them for ever and never mix two versions.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REVALIDATE = "no-cache"
IMMUTABLE = "public, max-age=31536000, immutable"

_FOLDER = Path(__file__).with_name("static")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_FIXED = ("index.html", "sw.js", "manifest.webmanifest")
_PLACEHOLDER = b"{assets}"


@dataclass(frozen=True)
class StaticFile:
    """A file of the page. ``cache_control``: value of that header; ``tag``: without quotes."""

    content: bytes
    compressed: bytes
    content_type: str
    cache_control: str
    tag: str


@cache
def static_files() -> dict[str, StaticFile]:
    """The files by path (``/``, ``/index.html``, ``/_app/VERSION/page.css`` ...)."""
    sources = {
        path.relative_to(_FOLDER).as_posix(): path.read_bytes()
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }
    version = _digest(b"\0".join(name.encode() + b"\0" + content for name, content in sources.items()))
    folder = f"_app/{version}"
    found = {
        f"/{folder}/{name}": _static_file(name, content, IMMUTABLE)
        for name, content in sources.items()
        if name not in _FIXED
    }
    for name in _FIXED:
        content = sources[name].replace(_PLACEHOLDER, folder.encode())
        found[f"/{name}"] = _static_file(name, content, REVALIDATE)
    about = json.dumps({"version": version}, separators=(",", ":")).encode()
    for name in ("_app/version.json", "build.json"):
        found[f"/{name}"] = _static_file(name, about, REVALIDATE)
    found["/"] = found["/index.html"]
    return found


def _static_file(name: str, content: bytes, cache_control: str) -> StaticFile:
    compressed = gzip.compress(content, 9, mtime=0)
    return StaticFile(content, compressed, _TYPES[Path(name).suffix], cache_control, _digest(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
