"""/embeddings and /v1/embeddings with the real engine: shapes, lengths, input forms, errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
from flask.testing import FlaskClient

from pyjet.engine.local import LocalEngine
from pyjet.engine.request import Pooling
from pyjet.server.app import create_app
from pyjet.server.embeddings import UnknownPooling, normalized, pooling_of
from pyjet.server.option_parser import OptionError, parse
from tests.scripted_engine import ScriptedEngine
from tests.server.live import serving
from tests.server.real import has_library, tiny_engine, tiny_service
from tests.server.scripted import ids, make_client, post, post_error, said

needs_library = pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
NATIVE = ("/embedding", "/embeddings")
TEXT = "I believe the meaning of life is"


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with tiny_engine() as engine:
        yield engine


def client_of(engine: LocalEngine, pooling: Pooling | None = "last", **options: Any) -> FlaskClient:
    service = tiny_service(engine, embeddings=True, pooling=pooling, **options)
    return create_app(service, service.options).test_client()


def vectors(client: FlaskClient, value: Any, **fields: Any) -> np.ndarray:
    data = post(client, "/v1/embeddings", {"input": value, **fields})["data"]
    assert [entry["index"] for entry in data] == list(range(len(data)))
    return np.array([entry["embedding"] for entry in data])


@needs_library
def test_openai_object(engine: LocalEngine) -> None:
    answer = post(client_of(engine), "/v1/embeddings", {"input": [TEXT, "This is a test"], "model": "my-embedder"})
    assert list(answer) == ["model", "object", "usage", "data"]
    assert (answer["model"], answer["object"]) == ("my-embedder", "list")
    n = len(ids(TEXT)) + len(ids("This is a test"))
    assert answer["usage"] == {"prompt_tokens": n, "total_tokens": n}
    assert [list(entry) for entry in answer["data"]] == [["embedding", "index", "object"]] * 2
    assert np.linalg.norm(answer["data"][1]["embedding"]) == pytest.approx(1, abs=1e-5)
    assert post(client_of(engine), "/v1/embeddings", {"input": "a"})["model"] == "tiny"


@needs_library
@pytest.mark.parametrize("path", NATIVE)
def test_native_object(engine: LocalEngine, path: str) -> None:
    """All rows with pooling "none", as they are; /v1/embeddings cannot say that."""
    client = client_of(engine, "none")
    (answer,) = post(client, path, {"content": TEXT})
    assert answer["index"] == 0
    rows = np.array(answer["embedding"])
    assert len(rows) == len(ids(TEXT)) and (abs(np.linalg.norm(rows, axis=1) - 1) > 0.1).all()
    status, error = post_error(client, "/v1/embeddings", {"input": TEXT})
    assert (status, error["message"]) == (
        400, "Pooling type 'none' is not OAI compatible. Please use a different pooling type",
    )  # fmt: skip
    pooled: list[tuple[Pooling, np.ndarray]] = [("mean", rows.mean(axis=0)), ("cls", rows[0]), ("last", rows[-1])]
    for kind, row in pooled:
        (answer,) = post(client_of(engine, kind), path, {"input": TEXT, "embd_normalize": -1})
        np.testing.assert_allclose(answer["embedding"], row[None], rtol=1e-4, atol=1e-6)


@needs_library
def test_content_on_the_openai_path_is_native(engine: LocalEngine) -> None:
    (answer,) = post(client_of(engine), "/v1/embeddings", {"content": TEXT})
    assert np.array(answer["embedding"]).shape[0] == 1


@needs_library
def test_forms_of_input(engine: LocalEngine) -> None:
    client = client_of(engine)
    plain = vectors(client, TEXT)
    parts = {"content": [{"type": "text", "text": TEXT[:10]}, {"type": "text", "text": TEXT[10:]}]}
    for value in (ids(TEXT), [ids(TEXT)], [TEXT], {"prompt_string": TEXT}, parts, [parts]):
        assert vectors(client, value).tobytes() == plain.tobytes(), value
    many = vectors(client, [TEXT, ids("abc"), {"prompt_string": "x"}, parts, "This is another test", TEXT, ["a", 5]])
    assert len(many) == 7
    assert many[0].tobytes() == many[3].tobytes() == many[5].tobytes() == plain[0].tobytes()
    assert len({row.tobytes() for row in many}) == 5


@needs_library
def test_base64_holds_the_same_floats(engine: LocalEngine) -> None:
    client = client_of(engine, "mean")
    (entry,) = post(client, "/v1/embeddings", {"input": TEXT, "encoding_format": "base64"})["data"]
    assert entry["encoding_format"] == "base64"
    floats = np.frombuffer(base64.b64decode(entry["embedding"]), "<f4")
    assert floats.astype(np.float64).tolist() == vectors(client, TEXT)[0].tolist()


@needs_library
def test_a_long_text(engine: LocalEngine) -> None:
    """More than a micro-batch is fine where rows are pooled, and not where all of them are the answer."""
    tokens = ids(TEXT) * 100
    assert len(vectors(client_of(engine, "mean"), tokens)) == 1
    status, error = post_error(client_of(engine, "none"), "/embeddings", {"input": tokens})
    assert status == 500 and "too large to process" in error["message"]
    status, error = post_error(client_of(engine), "/v1/embeddings", {"input": tokens * 4})
    assert (status, error["type"], error["n_ctx"]) == (400, "exceed_context_size_error", 2048)
    status, error = post_error(client_of(engine, "none"), "/embeddings", {"input": [[5] * 500] * 80})
    assert status == 400 and "rows than fit into one answer" in error["message"]


@needs_library
def test_openai_client(engine: LocalEngine) -> None:
    service = tiny_service(engine, embeddings=True, pooling="last")
    with serving(service) as port, openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client:
        answer = client.embeddings.create(model="any", input=[TEXT, "This is a test"])  # base64, unless asked not to
        plain = client.embeddings.create(model="any", input=TEXT, encoding_format="float")
    assert answer.data[0].embedding == pytest.approx(plain.data[0].embedding) and len(answer.data) == 2


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, '"input" or "content" must be provided'),
        ([], '"input" or "content" must be provided'),
        ({"input": []}, '"input" must not be empty'),
        ({"input": ""}, "Input content cannot be empty"),
        ({"input": ["a", ""]}, "Input content cannot be empty"),
        ({"input": True}, '"prompt" elements must be'),
        ({"input": None}, '"prompt" elements must be'),
        ({"input": {"content": "text"}}, '"content" must be an array'),
        ({"input": {"content": [{"type": "unknown"}]}}, "unsupported content[].type"),
        ({"input": [1 << 30]}, "Prompt contains invalid tokens"),
        ({"input": "a", "encoding_format": 1}, "type must be string"),
        ({"input": "a", "encoding_format": "int8"}, "Can be either float or base64"),
        ({"input": "a", "embd_normalize": "x"}, "type must be number"),
    ],
)
def test_bad_requests(body: Any, message: str) -> None:
    engine = ScriptedEngine(said("a"))
    status, error = post_error(make_client(engine, embeddings=True, pooling="last"), "/v1/embeddings", json.dumps(body))
    assert (status, error["type"]) == (400, "invalid_request_error") and message in error["message"]
    assert engine.requests == []


def test_media_are_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    client = make_client(ScriptedEngine(said("a")), embeddings=True, pooling="last")
    assert post_error(client, "/v1/embeddings", {"input": {"content": [part]}})[0] == 500


@pytest.mark.parametrize("path", [*NATIVE, "/v1/embeddings"])
def test_off_unless_asked_for(path: str) -> None:
    status, error = post_error(make_client(ScriptedEngine(said("a"))), path, {"input": "a"})
    assert (status, error["type"]) == (501, "not_supported_error") and "`--embeddings`" in error["message"]


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (-1, [3.0, -4.0]),
        (0, [24570.0, -32760.0]),
        (1, [3 / 7, -4 / 7]),
        (2, [0.6, -0.8]),
        (3, [3 / 91 ** (1 / 3), -4 / 91 ** (1 / 3)]),
    ],
)
def test_lengths(norm: int, expected: list[float]) -> None:
    rows = np.array([[3, -4], [0, 0]], np.float32)
    np.testing.assert_allclose(normalized(rows, norm), [expected, [0, 0]], rtol=1e-6)
    assert np.isfinite(normalized(rows, 2**31 - 1)).all()


def test_the_models_own_pooling() -> None:
    metadata = {"general.architecture": "qwen3", "qwen3.pooling_type": 3}
    assert pooling_of(None, metadata) == "last" and pooling_of("mean", metadata) == "mean"
    assert pooling_of(None, {"general.architecture": "qwen3"}) == "none"
    with pytest.raises(UnknownPooling, match="pooling_type is 4"):
        pooling_of(None, metadata | {"qwen3.pooling_type": 4})


def test_options() -> None:
    options = parse(["--embeddings", "--pooling", "mean", "--embd-normalize", "-1"], {}).options
    assert (options.embeddings, options.pooling, options.embd_normalize) == (True, "mean", -1)
    with pytest.raises(OptionError, match="classification head"):
        parse(["--pooling", "rank"], {})
    with pytest.raises(OptionError):
        parse(["--pooling", "first"], {})
