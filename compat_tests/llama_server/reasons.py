"""Why tests of the suite do not pass on pyjet-server: test function -> reason, for all models or for one."""

from __future__ import annotations

REASONS: dict[str, str] = {}
MODEL_REASONS: dict[tuple[str, str], str] = {
    ("test_slot_save_restore", "pyjet-tiny"): "the same short prompt once more is read again, ten tokens: a recurrent "
    "state is kept behind more than 64 tokens only (reuse.md)",
}


def reason_of(function: str, model: str) -> str:
    """The reason; empty when none is known."""
    return MODEL_REASONS.get((function, model), REASONS.get(function, ""))
