"""Prediction platforms: many requests in one body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjet.server.option_parser import OptionError, parse
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, post, post_error, said

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}


def test_variables() -> None:
    environment = {"AIP_MODE": "PREDICTION", "AIP_HTTP_PORT": "9000", "AIP_HEALTH_ROUTE": "/alive"}
    options = parse(["--port", "1"], environment).options
    assert (options.port, options.predict_route, options.health_route) == (9000, "/predict", "/alive")
    assert parse([], {"AIP_HTTP_PORT": "9000"}).options.predict_route is None
    for name, text in (("AIP_HTTP_PORT", "x"), ("AIP_PREDICT_ROUTE", "predict")):
        with pytest.raises(OptionError, match=name):
            parse([], {"AIP_MODE": "PREDICTION", name: text})


def test_predictions_come_in_order() -> None:
    client = make_client(ScriptedEngine(said("Hello")), predict_route="/predict", health_route="/alive")
    instances: list[Any] = [
        {"@requestFormat": "chatCompletions", **CHAT},
        {"@requestFormat": "completion", "prompt": "a"},
        {"@requestFormat": "/tokenize", "content": "Hello"},
        {"@requestFormat": "completion"},
        {"@requestFormat": "magic"},
        {"@requestFormat": "embeddings"},
        7,
    ]
    chat, text, tokens, *failures = post(client, "/predict", {"instances": instances})["predictions"]
    assert chat["object"] == "chat.completion" and text["content"] == "Hello" and tokens["tokens"]
    assert [failure["error"]["code"] for failure in failures] == [400, 400, 501, 400]
    assert client.get("/alive").get_json() == {"status": "ok"}


@pytest.mark.parametrize("body", [{}, [], {"instances": {}}, {"instances": [{}] * 129}])
def test_bad_lists(body: Any) -> None:
    client = make_client(ScriptedEngine(said("Hello")), predict_route="/predict")
    assert post_error(client, "/predict", json.dumps(body))[0] == 400


def test_off_by_default() -> None:
    assert make_client(ScriptedEngine(said("x"))).post("/predict", data=b'{"instances":[]}').status_code == 404
