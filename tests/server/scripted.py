"""A served model whose engine is scripted: real tokenizer, real template, real HTTP code."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from flask.testing import FlaskClient

from pyjet.assets import default_model_path
from pyjet.chat.template import ChatTemplate
from pyjet.model.reader import Model, load_model
from pyjet.model.tokenizer import Tokenizer
from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from pyjet.server.service import Service
from tests.scripted_engine import Script, ScriptedEngine


@cache
def tiny_model() -> Model:
    return load_model(default_model_path())


@cache
def tiny_tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(tiny_model().metadata)


@cache
def tiny_template() -> ChatTemplate:
    return ChatTemplate(tiny_model().metadata["tokenizer.chat_template"], bos_token="", eos_token="<|im_end|>")


def ids(text: str) -> list[int]:
    return tiny_tokenizer().encode(text)


def eos() -> int:
    token = tiny_tokenizer().eos_id
    assert token is not None
    return token


def said(text: str, **how: Any) -> Script:
    """A script that says ``text`` and ends."""
    return Script([*ids(text), eos()], **how)


def make_service(engine: ScriptedEngine, **options: Any) -> Service:
    return Service(
        tiny_model(),
        tiny_tokenizer(),
        tiny_template(),
        engine,
        ServerOptions(**options),
        model_id="tiny",
        aliases=["tiny"],
    )


def make_client(engine: ScriptedEngine, **options: Any) -> FlaskClient:
    service = make_service(engine, **options)
    return create_app(service, service.options).test_client()


def post(client: FlaskClient, path: str, body: dict[str, Any]) -> Any:
    response = client.post(path, data=json.dumps(body))
    assert response.status_code == 200, response.get_data(as_text=True)
    return json.loads(response.get_data(as_text=True))


def post_error(client: FlaskClient, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    response = client.post(path, data=body if isinstance(body, (bytes, str)) else json.dumps(body))
    return response.status_code, json.loads(response.get_data(as_text=True))["error"]


def events(data: bytes) -> list[Any]:
    """Payloads of an event stream, ``"[DONE]"`` and pings (``":"``) included; every line must be well-formed."""
    text = data.decode("utf-8")
    assert text == "" or text.endswith("\n\n")
    result: list[Any] = []
    for block in text.split("\n\n")[:-1]:
        if block == ":":
            result.append(":")
            continue
        assert block.startswith("data: ") and "\n" not in block
        payload = block.removeprefix("data: ")
        result.append(payload if payload == "[DONE]" else json.loads(payload))
    return result


def stream(client: FlaskClient, path: str, body: dict[str, Any]) -> list[Any]:
    response = client.post(path, data=json.dumps({**body, "stream": True}))
    assert response.status_code == 200, response.get_data(as_text=True)
    assert response.headers["Content-Type"] == "text/event-stream"
    return events(response.get_data())


def typed_stream(client: FlaskClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Events of a stream that names each event after its ``type``; pings are left out."""
    response = client.post(path, data=json.dumps({**body, "stream": True}))
    assert response.status_code == 200, response.get_data(as_text=True)
    assert response.headers["Content-Type"] == "text/event-stream"
    blocks = response.get_data().decode("utf-8").split("\n\n")
    assert blocks.pop() == ""
    result = []
    for block in blocks:
        if block == ":":
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        result.append(event)
    return result
