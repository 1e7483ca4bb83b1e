"""The web page in a browser tab, with a scripted engine behind the real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.browser import open_tab
from tests.server.live import serving
from tests.server.scripted import make_service, said, tiny_tokenizer

HELLO = "I greet back.</think>\n\nHello **you**"
CALL = (
    "I look.</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "</function>\n</tool_call>"
)
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }
    ]
)
ANSWER = ".message.assistant"
DONE = f"{ANSWER}[aria-busy=false]"


class Visit:
    """A tab with the page, and the engine that answers it."""

    def __init__(self, page: Any, engine: ScriptedEngine) -> None:
        self.page = page
        self.engine = engine

    def ready(self) -> None:
        self.page.wait_for_selector("#send:enabled")

    def send(self, text: str) -> None:
        self.page.fill("#text", text)
        self.page.press("#text", "Enter")

    def answer(self, text: str = "Hi") -> None:
        """Send a message and wait for the end of its answer."""
        before = self.page.locator(DONE).count()
        self.send(text)
        self.page.locator(DONE).nth(before).wait_for()

    def prompt(self) -> str:
        """What the engine was asked last."""
        return tiny_tokenizer().decode(self.engine.requests[-1].prompt)

    def texts(self, selector: str) -> list[str]:
        return [str(text) for text in self.page.locator(selector).all_inner_texts()]

    def reload(self) -> None:
        self.page.reload()
        self.ready()

    def set_fields(self, **values: str) -> None:
        """Write into fields of the settings, and save."""
        self.page.click("#open-settings")
        for name, value in values.items():
            self.page.fill(f"#settings [name={name}]", value)
        self.page.click("#settings >> text=Save")


Open = Callable[..., Visit]


@contextmanager
def visits(browser: Any) -> Iterator[Open]:
    """A function that serves scripts with options of the server, and opens the page.

    No script of the page may have failed or broken its policy in the end.
    """
    problems: list[str] = []
    with open_tab(browser, problems) as page, ExitStack() as servers:

        def start(*scripts: Script, n_ctx_slot: int = 4096, **options: Any) -> Visit:
            engine = ScriptedEngine(*(scripts or (said(HELLO),)), n_ctx_slot=n_ctx_slot)
            port = servers.enter_context(serving(make_service(engine, **options)))
            page.goto(f"http://127.0.0.1:{port}{options.get('api_prefix', '')}/")
            visit = Visit(page, engine)
            if not options.get("api_keys"):
                visit.ready()
            return visit

        yield start
    assert problems == []
