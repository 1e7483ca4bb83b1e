"""Headless Chromium for tests of the web page; such tests are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TIMEOUT_MS = 20_000


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of playwright. Close it before other tests run: it holds the thread's event loop."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        program = next(filter(None, map(shutil.which, NAMES)), own if os.path.exists(own) else None)
        if program is None:
            pytest.skip(f"no Chromium here: none of {', '.join(NAMES)} is on the PATH")
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_tab(browser: Any, problems: list[str] | None = None) -> Iterator[Any]:
    """An empty page with storage of its own; what its scripts fail at is added to ``problems``.

    Answers with an error status are no problems: the page tells them to the user.
    """
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(TIMEOUT_MS)
    found = [] if problems is None else problems

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            found.append(message.text)

    context.on("console", on_console)
    context.on("weberror", lambda error: found.append(str(error.error)))
    try:
        yield context.new_page()
    finally:
        context.close()
