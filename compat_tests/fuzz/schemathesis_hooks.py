"""The verdict as a check of schemathesis, which runs in an environment of its own and loads this file as its hooks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import schemathesis

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from compat_tests.fuzz.mutate import Request
from compat_tests.fuzz.verdict import fault


@schemathesis.check
def no_internal_error(ctx: Any, response: Any, case: Any) -> None:
    """Fails for answers that no request may get."""
    request = Request(response.request.method, response.request.path_url, b"")
    if wrong := fault(request, response.status_code, response.content):
        raise AssertionError(wrong)
