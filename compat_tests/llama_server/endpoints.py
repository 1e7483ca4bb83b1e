"""What pyjet-server answers at each of llama-server's endpoints, found by asking it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from flask.testing import FlaskClient

from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, said

# method, path and aliases, the option that switches it on
PEER_ENDPOINTS: tuple[tuple[str, str, str], ...] = (
    ("GET", "/health /v1/health", ""),
    ("GET", "/models /v1/models", ""),
    ("GET", "/props", ""),
    ("POST", "/props", "--props"),
    ("GET", "/slots", "--slots"),
    ("POST", "/slots/0?action=erase", "--slot-save-path"),
    ("GET", "/metrics", "--metrics"),
    ("POST", "/completion /completions", ""),
    ("POST", "/v1/completions", ""),
    ("POST", "/chat/completions /v1/chat/completions", ""),
    ("POST", "/v1/chat/completions/control", ""),
    ("POST", "/responses /v1/responses", ""),
    ("POST", "/v1/messages", ""),
    ("POST", "/v1/messages/count_tokens", ""),
    ("POST", "/chat/completions/input_tokens /v1/chat/completions/input_tokens", ""),
    ("POST", "/responses/input_tokens /v1/responses/input_tokens", ""),
    ("POST", "/infill", ""),
    ("POST", "/tokenize", ""),
    ("POST", "/detokenize", ""),
    ("POST", "/apply-template", ""),
    ("GET", "/lora-adapters", ""),
    ("POST", "/lora-adapters", ""),
    ("POST", "/embedding /embeddings /v1/embeddings", "--embeddings"),
    ("POST", "/rerank /reranking /v1/rerank /v1/reranking", "--reranking"),
    ("POST", "/audio/transcriptions /v1/audio/transcriptions", ""),
    ("POST", "/v1/systemone", ""),
    ("GET", "/v1/stream?conv_id=none", ""),
    ("DELETE", "/v1/stream?conv_id=none", ""),
    ("POST", "/v1/streams/lookup", ""),
    ("GET", "/tools", "--tools"),
    ("POST", "/tools", "--tools"),
    ("GET", "/cors-proxy", "--ui-mcp-proxy"),
    ("POST", "/cors-proxy", "--ui-mcp-proxy"),
    ("GET", "/", "--ui"),
)


@dataclass(frozen=True)
class Endpoint:
    """``answer``: "works", or why not."""

    method: str
    paths: tuple[str, ...]
    option: str
    answer: str


def probe() -> list[Endpoint]:
    """Ask a server whose engine is scripted, with everything switched on that can be."""
    client = make_client(
        ScriptedEngine(said("Hi")), props=True, slots=True, metrics=True, slot_save_path="/nowhere", ui=True,
        embeddings=True, pooling="mean",
    )
    return [
        Endpoint(method, tuple(paths.split()), option, _answer(client, method, paths.split()))
        for method, paths, option in PEER_ENDPOINTS
    ]


def _answer(client: FlaskClient, method: str, paths: list[str]) -> str:
    answers = {_ask(client, method, path) for path in paths}
    if len(answers) > 1:
        raise ValueError(f"aliases answer differently: {paths}: {answers}")
    return answers.pop()


def _ask(client: FlaskClient, method: str, path: str) -> str:
    """An empty object is a wrong request for most endpoints: any answer but these means that there is one."""
    body = None if method == "GET" else b"{}"
    response = client.open(path, method=method, data=body)
    if response.status_code == 404 and "conv_id" not in path:
        return "unknown (404)"
    if response.status_code in (403, 501):
        message = json.loads(response.get_data(as_text=True))["error"]["message"]
        return f"{response.status_code}: {message}"
    return "works"
