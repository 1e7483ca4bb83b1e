"""The benchmark of Python's part of a step measures all its parts."""

from __future__ import annotations

import pytest

from bench.host_path import KINDS, measure


@pytest.mark.parametrize("kind", KINDS)
def test_all_parts_are_measured(kind: str) -> None:
    found = measure(2, 40, 20, KINDS[kind])
    assert set(found) == {"begin", "prepare", "take", "masks", "settle", "path"}
    assert all(us > 0.0 for name, us in found.items() if name != "masks" or kind == "_grammar")
    assert found["path"] >= found["begin"]
