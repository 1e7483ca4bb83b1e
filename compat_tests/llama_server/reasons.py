"""Why tests of the suite do not pass on pyjet-server: test function -> reason, for all models or for one."""

from __future__ import annotations

REASONS: dict[str, str] = {}
MODEL_REASONS: dict[tuple[str, str], str] = {}


def reason_of(function: str, model: str) -> str:
    """The reason; empty when none is known."""
    return MODEL_REASONS.get((function, model), REASONS.get(function, ""))
