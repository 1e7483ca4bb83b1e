"""pyjet's HTTP server around the played engine, with a note of every request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from compat_tests.clients.play import Play
from compat_tests.clients.played_engine import played_engine
from pyjet.server.app import create_app
from pyjet.server.options import ServerOptions
from tests.server.live import running
from tests.server.real import tiny_service
from tests.server.scripted import tiny_tokenizer

THINKING = "<think>\n"  # ends prompts whose answer begins with thoughts
THOUGHT = "The greeting has to change.\n</think>\n\n"


@dataclass
class PlayedServer:
    """A running server: its address, what it says next, and the requests so far as (method, path, status)."""

    url: str
    play: Play = field(default_factory=lambda: Play([""]))
    requests: list[tuple[str, str, int]] = field(default_factory=list)

    def say(self, play: Play) -> None:
        """Answer from ``play`` from now on, and forget the requests so far."""
        self.play = play
        self.requests = []

    def tokens(self, prompt: tuple[int, ...]) -> list[int]:
        tokenizer = tiny_tokenizer()
        text = tokenizer.decode(prompt)
        answer = self.play.answer(text)
        end = tokenizer.eos_id
        assert end is not None
        return [*tokenizer.encode((THOUGHT if text.endswith(THINKING) else "") + answer), end]

    def refused(self) -> list[str]:
        """Requests that were answered with an error, as text."""
        return [f"{method} {path}: {status}" for method, path, status in self.requests if status >= 400]


@contextmanager
def played_server(**options: Any) -> Iterator[PlayedServer]:
    """Serve on a free port until the block ends."""
    server_options = ServerOptions(**options)
    with running(server_options) as http:
        played = PlayedServer(f"http://127.0.0.1:{http.port}")
        with played_engine(played.tokens) as engine:
            service = tiny_service(engine, **options)
            http.app = noting(create_app(service, service.options), played)
            yield played


def noting(app: Callable[..., Any], played: PlayedServer) -> Callable[..., Any]:
    """The application, which notes each request once its answer begins."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        def start(status: str, *more: Any) -> Any:
            path = environ["PATH_INFO"]
            played.requests.append((environ["REQUEST_METHOD"], path, int(status.split()[0])))
            return start_response(status, *more)

        return app(environ, start)

    return call
