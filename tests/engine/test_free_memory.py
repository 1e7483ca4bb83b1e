from __future__ import annotations

from pathlib import Path

import pytest

from pyjet.engine.free_memory import available_bytes


def test_this_machine_has_some() -> None:
    assert (available_bytes() or 1 << 30) > 1 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MemTotal: 9 kB\nMemAvailable:    123 kB\n", 123 * 1024),
        ("MemTotal: 9 kB\n", None),
        ("MemAvailable:\n", None),
        ("MemAvailable: many kB\n", None),
    ],
)
def test_what_the_system_says(tmp_path: Path, text: str, expected: int | None) -> None:
    (tmp_path / "meminfo").write_text(text)
    assert available_bytes(tmp_path / "meminfo") == expected
    assert available_bytes(tmp_path / "nothing") is None
