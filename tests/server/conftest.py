"""A browser for the tests of the page; sync playwright takes a thread's event loop, so each module has its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.browser import chromium
from tests.server.page_visit import Open, visits


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    with visits(browser) as start:
        yield start
