"""What several modules need: an engine behind a real server for SDKs, and a browser for the page.

Sync playwright takes a thread's event loop, so each module has its own browser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.scripted_engine import ScriptedEngine
from tests.server.browser import chromium
from tests.server.live import serving
from tests.server.page_visit import Open, visits
from tests.server.scripted import make_service, said


@pytest.fixture
def engine() -> ScriptedEngine:
    """It says a thought and an answer; tests let it say something else."""
    return ScriptedEngine(said("Thinking.\n</think>\n\nHello you"))


@pytest.fixture
def engine_url(engine: ScriptedEngine) -> Iterator[str]:
    """Of a server with this engine."""
    with serving(make_service(engine)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    with visits(browser) as start:
        yield start
