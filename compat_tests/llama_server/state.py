"""What the plugin knows while pytest runs."""

from __future__ import annotations

import pathlib
from typing import Any

CONFIG_VARIABLE = "LLAMA_COMPAT_CONFIG"  # environment variable with the plugin's configuration as JSON


class State:
    """One per pytest process."""

    cfg: dict[str, Any] = {}  # noqa: RUF012 - filled once when the plugin is loaded
    item: Any = None  # the running pytest item
    expected: dict[str, Any] = {}  # noqa: RUF012 - from --expect
    seen: dict[str, Any] = {}  # noqa: RUF012 - for --record
    outcomes: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - node id -> outcome


def function_name(item: Any) -> str:
    """Test function of a pytest item, without its parameters."""
    return str(getattr(item, "originalname", item.name))


def file_name(item: Any) -> str:
    return pathlib.Path(str(item.path)).name
