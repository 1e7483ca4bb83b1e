"""Embeddings: llama-server's own endpoint and OpenAI's."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from flask import Flask, Response

from pyjet.server import jsonio
from pyjet.server.embeddings import EmbeddingJob, Rows, check_inputs, normalized, pooling_of
from pyjet.server.errors import ApiError, invalid_request, type_error
from pyjet.server.generation import ClientGone, check_prompts
from pyjet.server.http import client_gone
from pyjet.server.json_fields import INT32_MAX, read_int
from pyjet.server.profiles import find_profile
from pyjet.server.prompts import read_inputs

if TYPE_CHECKING:
    from pyjet.server.service import Service

_FORMATS = ("float", "base64")


def register(app: Flask, service: Service) -> None:
    """Add ``/embedding``, ``/embeddings`` (both native) and ``/v1/embeddings``."""
    for path in ("/embedding", "/embeddings", "/v1/embeddings"):
        is_openai = path.startswith("/v1/")
        app.add_url_rule(
            path, f"embeddings:{path}", lambda is_openai=is_openai: _answer(service, is_openai), methods=["POST"]
        )


def _answer(service: Service, is_openai: bool) -> Response:
    if not service.options.embeddings:
        raise ApiError(501, "This server does not support embeddings. Start it with `--embeddings`")
    pooling = pooling_of(service.options.pooling, service.model.metadata)
    if is_openai and pooling == "none":
        raise invalid_request("Pooling type 'none' is not OAI compatible. Please use a different pooling type")
    value = jsonio.request_value()
    body: dict[str, Any] = value if isinstance(value, dict) else {}
    name = next((name for name in ("input", "content") if name in body), None)
    if name is None:
        raise invalid_request('"input" or "content" must be provided')
    encoding = _encoding(body)
    prompts = _prompts(service, body[name])
    norm = read_int(body, ("embd_normalize",), service.options.embd_normalize, -INT32_MAX, INT32_MAX)
    profile = find_profile(service.options.profiles, body.get("model"))
    check_prompts(service, prompts, profile.context(service.n_ctx_slot))
    check_inputs(service, prompts, pooling)
    priority = read_int(body, ("priority",), profile.priority, -INT32_MAX, INT32_MAX, hard=True)
    try:
        results = EmbeddingJob(service, prompts, pooling, priority).run(client_gone())
    except ClientGone:
        return Response(status=499)  # nobody reads it
    if pooling != "none":
        results = [normalized(rows, norm) for rows in results]
    if is_openai and name == "input":
        return jsonio.response(_openai(body, service.model_id, results, prompts, encoding))
    return jsonio.response([{"index": i, "embedding": rows.tolist()} for i, rows in enumerate(results)])


def _encoding(body: Mapping[str, Any]) -> str:
    encoding = body.get("encoding_format", "float")
    if not isinstance(encoding, str):
        raise type_error("string", encoding, "encoding_format")
    if encoding not in _FORMATS:
        raise invalid_request("The format to return the embeddings in. Can be either float or base64")
    return encoding


def _prompts(service: Service, value: Any) -> list[list[int]]:
    prompts = read_inputs(value, service.tokenizer)
    if not prompts:
        raise invalid_request('"input" must not be empty')
    if not all(prompts):
        raise invalid_request("Input content cannot be empty")
    return prompts


def _openai(
    body: Mapping[str, Any], model_id: str, results: Sequence[Rows], prompts: Sequence[Sequence[int]], encoding: str
) -> dict[str, Any]:
    n_tokens = sum(map(len, prompts))
    return {
        "model": body["model"] if isinstance(body.get("model"), str) else model_id,
        "object": "list",
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        "data": [_entry(index, rows, encoding) for index, rows in enumerate(results)],
    }


def _entry(index: int, rows: Rows, encoding: str) -> dict[str, Any]:
    if encoding == "float":
        return {"embedding": rows[0].tolist(), "index": index, "object": "embedding"}
    data = base64.b64encode(rows[0].astype(np.dtype("<f4")).tobytes()).decode("ascii")
    return {"embedding": data, "index": index, "object": "embedding", "encoding_format": "base64"}
