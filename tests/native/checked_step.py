"""What the tests of errors share: a small engine's settings and a step that it takes."""

from __future__ import annotations

from pyjet.native import EngineConfig, StepBatch
from tests.support.native_steps import ALL_OUTPUTS, Part, make_batch

HUGE, LOWEST = (1 << 31) - 1, -(1 << 31)
CONFIG = EngineConfig(n_pages=6, n_state_slots=3, page_tokens=16, max_rows=24, max_seqs=2, max_spec=3, n_threads=2)


def good_batch() -> StepBatch:
    """Two sequences: rows 0-4 at 0-4 in slot 0, rows 5-6 at 20-21 in slot 1."""
    return make_batch(Part([1, 2, 3, 4, 5], slot=0, pages=[0], flags=ALL_OUTPUTS), Part([6, 7], 20, 1, [1, 2]))
