"""Every method and path of llama-server's table is answered, with and without a key; all others are 404."""

from __future__ import annotations

import json

import pytest
from flask.testing import FlaskClient

from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, said

PUBLIC = "GET /health,GET /v1/health,GET /,GET /index.html,GET /sw.js,GET /manifest.webmanifest,GET /_app/version.json"
WITH_KEY = (
    "GET /models,GET /v1/models,GET /props,POST /props,GET /slots,POST /slots/0,GET /metrics,POST /completion,"
    "POST /completions,POST /v1/completions,POST /chat/completions,POST /v1/chat/completions,"
    "POST /v1/chat/completions/control,POST /responses,POST /v1/responses,POST /v1/messages,"
    "POST /v1/messages/count_tokens,POST /chat/completions/input_tokens,POST /v1/chat/completions/input_tokens,"
    "POST /responses/input_tokens,POST /v1/responses/input_tokens,POST /infill,POST /tokenize,POST /detokenize,"
    "POST /apply-template,GET /lora-adapters,POST /lora-adapters,POST /embedding,POST /embeddings,"
    "POST /v1/embeddings,POST /rerank,POST /reranking,POST /v1/rerank,POST /v1/reranking,"
    "POST /v1/audio/transcriptions,POST /audio/transcriptions,POST /v1/systemone,GET /v1/stream,DELETE /v1/stream,"
    "POST /v1/streams/lookup,GET /tools,POST /tools,GET /cors-proxy,POST /cors-proxy"
)
UNKNOWN = (
    "POST /models,DELETE /models,POST /models/load,POST /models/unload,GET /models/sse,GET /completion,POST /health,"
    "GET /v1/messages,POST /messages,POST /v1/infill,DELETE /v1/streams/lookup,POST /v1/stream,GET /infill/,"
    "POST /v1/responses/,GET /v1/responses/resp_1,PUT /props"
)


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return make_client(ScriptedEngine(said("x")), api_keys=["key"])


def call(client: FlaskClient, endpoint: str, key: str = "") -> tuple[int, str]:
    method, path = endpoint.split(" ")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = client.open(path, method=method, data=b"{}", headers=headers)
    return answer.status_code, answer.get_data(as_text=True)


@pytest.mark.parametrize("endpoint", PUBLIC.split(","))
def test_public(client: FlaskClient, endpoint: str) -> None:
    assert call(client, endpoint)[0] == 200


@pytest.mark.parametrize("endpoint", WITH_KEY.split(","))
def test_with_key(client: FlaskClient, endpoint: str) -> None:
    assert call(client, endpoint)[0] == 401
    status, body = call(client, endpoint, "key")
    assert status not in (401, 404, 405), body
    assert "not available" not in body


@pytest.mark.parametrize("endpoint", UNKNOWN.split(","))
def test_unknown(client: FlaskClient, endpoint: str) -> None:
    status, body = call(client, endpoint, "key")
    assert status == 404
    assert json.loads(body)["error"] == {"code": 404, "message": "File Not Found", "type": "not_found_error"}


@pytest.mark.parametrize("endpoint", ["GET /models", "GET /props", "GET /slots", "GET /lora-adapters"])
def test_head(client: FlaskClient, endpoint: str) -> None:
    path = endpoint.split(" ")[1]
    head = client.head(path, headers={"X-Api-Key": "key"})
    assert head.status_code == 200 and head.get_data() == b"" and int(head.headers["Content-Length"]) > 0
