"""A start that fails after the model was loaded ends the server instead of leaving it loading for ever."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pyjet.server import main
from pyjet.server.http import HttpServer
from pyjet.server.options import ServerOptions
from pyjet.server.startup import Startup


@pytest.mark.parametrize("where", ["load", "create_app"])
def test_whatever_fails_while_loading_ends_the_server(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise ImportError("a module is broken")

    options = ServerOptions(host=["127.0.0.1"], port=0)
    server = HttpServer(main.create_app(None, options), options)
    monkeypatch.setattr(Startup, "load", fail if where == "load" else lambda _self: object())
    if where == "create_app":
        monkeypatch.setattr(main, "create_app", fail)
    with caplog.at_level(logging.ERROR, "pyjet.server.main"):
        assert main.Run(server, options).wait() == 1
    assert "error loading model: ImportError: a module is broken" in caplog.text
