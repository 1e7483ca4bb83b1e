"""Text utilities: tokens of a text, text of tokens, the prompt of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.errors import type_error
from pyjet.server.json_fields import object_body
from pyjet.server.prompts import mixed_tokens, read_token
from pyjet.server.routes.chat import prepare

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer
    from pyjet.server.service import Service


def register(app: Flask, service: Service) -> None:
    """Add ``/tokenize``, ``/detokenize`` and ``/apply-template``."""

    def tokenize() -> Response:
        return jsonio.response({"tokens": _tokenize(object_body(jsonio.request_value()), service.tokenizer)})

    def detokenize() -> Response:
        return jsonio.response({"content": _detokenize(object_body(jsonio.request_value()), service.tokenizer)})

    def apply_template() -> Response:
        return jsonio.response({"prompt": prepare(service, jsonio.request_value()).prompt})

    app.add_url_rule("/tokenize", "tokenize", tokenize, methods=["POST"])
    app.add_url_rule("/detokenize", "detokenize", detokenize, methods=["POST"])
    app.add_url_rule("/apply-template", "apply_template", apply_template, methods=["POST"])


def _tokenize(body: dict[str, Any], tokenizer: Tokenizer) -> list[Any]:
    content = body.get("content")
    if content is None:
        return []
    add_special = _flag(body, "add_special", False)
    parse_special = _flag(body, "parse_special", True)
    tokens = mixed_tokens(content, tokenizer, add_special=add_special, parse_special=parse_special)
    if not _flag(body, "with_pieces", False):
        return list(tokens)
    return [{"id": token, "piece": _piece(token, tokenizer)} for token in tokens]


def _detokenize(body: dict[str, Any], tokenizer: Tokenizer) -> str:
    tokens = body.get("tokens")
    if tokens is None:
        return ""
    if not isinstance(tokens, list):
        raise type_error("array", tokens)
    return tokenizer.decode([read_token(token, tokenizer) for token in tokens])


def _piece(token: int, tokenizer: Tokenizer) -> str | list[int]:
    """Text of a token; its bytes when they are not UTF-8 by themselves."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


def _flag(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    return value if isinstance(value, bool) else default
