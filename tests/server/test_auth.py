"""API keys, CORS, the API prefix, and the order of loading, key and route."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, said

WRONG_KEY = {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}
LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


def client(**options: object) -> FlaskClient:
    return make_client(ScriptedEngine(said("x")), **options)


@pytest.fixture(scope="module")
def guarded() -> FlaskClient:
    return client(api_keys=["sk-one", "sk-two"])


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer sk-one"},
        {"Authorization": "sk-two"},
        {"X-Api-Key": "sk-one"},
        {"Authorization": "", "X-Api-Key": "sk-two"},
    ],
)
def test_right_keys(guarded: FlaskClient, headers: dict[str, str]) -> None:
    assert guarded.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "bearer sk-one"},
        {"Authorization": "Bearer  sk-one"},
        {"Authorization": "Bearer sk-on"},
        {"Authorization": "Bearer wrong", "X-Api-Key": "sk-one"},
        {"X-Api-Key": "Bearer"},
        {"Authorization": "Bearer \xe9"},
    ],
)
def test_wrong_keys(guarded: FlaskClient, headers: dict[str, str]) -> None:
    for path in ("/v1/models", "/props", "/unknown", "/tools"):
        answer = guarded.get(path, headers=headers)
        assert answer.status_code == 401 and answer.get_json() == WRONG_KEY
    assert guarded.post("/completion", data=b"{bad", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "path", ["/health", "/v1/health", "/", "/index.html", "/sw.js", "/manifest.webmanifest", "/_app/version.json"]
)
def test_public_paths(guarded: FlaskClient, path: str) -> None:
    assert guarded.get(path).status_code == 200


def test_preflight_needs_no_key(guarded: FlaskClient) -> None:
    assert guarded.options("/v1/chat/completions").status_code == 200


def test_prefix_moves_everything() -> None:
    moved = client(api_prefix="/api/x", api_keys=["k"])
    assert moved.get("/api/x/health").get_json() == {"status": "ok"}
    assert moved.get("/api/x/v1/models", headers={"X-Api-Key": "k"}).status_code == 200
    for path in ("/health", "/", "/api/x", "/api/xhealth", "/api/x//health", "//health"):
        assert moved.get(path, headers={"X-Api-Key": "k"}).status_code == 404, path
    assert moved.get("/health").status_code == 401


def test_while_loading() -> None:
    loading = create_app(None, ServerOptions(api_keys=["k"])).test_client()
    for path in ("/health", "/v1/models", "/unknown"):
        answer = loading.get(path)
        assert answer.status_code == 503 and answer.get_json() == LOADING
    assert loading.post("/completion", data=b"{}").status_code == 503
    assert loading.options("/completion").status_code == 200
    assert loading.get("/").status_code == 200


def test_engine_that_loads_again_or_failed() -> None:
    again = make_client(ScriptedEngine(said("x"), state="loading"))
    assert again.get("/health").get_json() == LOADING
    failed = make_client(ScriptedEngine(said("x"), state="failed"))
    answer = failed.get("/health")
    assert answer.status_code == 503 and "scripted" in answer.get_json()["error"]["message"]


# CORS


@pytest.mark.parametrize(
    ("origins", "credentials", "origin", "expected"),
    [
        ("*", True, "http://a.b", "http://a.b"),
        ("*", True, "", ""),
        ("*", False, "http://a.b", "*"),
        ("localhost", True, "http://localhost:3000", "http://localhost:3000"),
        ("localhost", True, "https://127.0.0.1", "https://127.0.0.1"),
        ("localhost", True, "http://[::1]:8", "http://[::1]:8"),
        ("localhost", True, "http://localhost.evil.com", None),
        ("localhost", True, "http://[bad", None),
        ("localhost", True, "", None),
        ("http://a.b", True, "http://c.d", "http://a.b"),
        ("http://a.b, http://c.d", True, "http://c.d", "http://c.d"),
        ("http://a.b, http://c.d", True, "http://e.f", None),
    ],
)
def test_allowed_origin(origins: str, credentials: bool, origin: str, expected: str | None) -> None:
    app = create_app(None, ServerOptions(cors_origins=origins, cors_credentials=credentials)).test_client()
    headers = {"Origin": origin} if origin else {}
    for answer in (app.get("/nope", headers=headers), app.options("/x", headers=headers)):
        assert answer.headers.get("Access-Control-Allow-Origin") == expected
    assert app.options("/x").headers["Access-Control-Allow-Credentials"] == str(credentials).lower()


def test_preflight_values() -> None:
    app = create_app(None, ServerOptions(cors_methods="GET", cors_headers="X-A")).test_client()
    headers = app.options("/x").headers
    assert headers["Access-Control-Allow-Methods"] == "GET" and headers["Access-Control-Allow-Headers"] == "X-A"
    assert "Access-Control-Allow-Methods" not in app.get("/x").headers
