"""The SDKs. pyjet-tiny itself does their task, behind pyjet-server as users start it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compat_tests.clients.case import Case, Command, Place

SCRIPTS = Path(__file__).resolve().parent / "sdk"
ADD_BEFORE = "def subtract(a, b):\n    return a - b\n\n\ndef add(a, b):\n    return"


def script(name: str, *arguments: str) -> Callable[[Place], Command]:
    """Run a script of the folder ``sdk`` with the SDKs' own Python."""
    return lambda place: Command([place.tools.python("sdk"), SCRIPTS / f"{name}.py", place.url, *arguments])


def both_ways(client: str, package: str, api: str, name: str, *more: str, file: str = "") -> list[Case]:
    """A case for whole answers and one for streams."""
    other = {"file": file, "before": ADD_BEFORE, "after": ADD_BEFORE + " a + b\n"} if file else {}
    return [
        Case(client, "sdk", package, api + suffix, script(name, way, *more), **other)
        for way, suffix in (("whole", ""), ("stream", ", streamed"))
    ]


SDKS = [
    *both_ways("openai", "openai", "/v1/chat/completions", "openai_chat"),
    *both_ways("openai", "openai", "/v1/responses", "openai_responses"),
    *both_ways("anthropic", "anthropic", "/v1/messages", "anthropic_messages"),
    *both_ways("LangChain agent", "langchain-openai", "/v1/chat/completions", "langchain_agent", "openai"),
    *both_ways("LangChain agent", "langchain-openai", "/v1/responses", "langchain_agent", "responses"),
    *both_ways("LangChain agent", "langchain-anthropic", "/v1/messages", "langchain_agent", "anthropic"),
    *both_ways(
        "LangChain Llamafile", "langchain-community", "/completion", "langchain_llamafile", file="add.py"
    ),
]
