"""Every field of a step's C structures out of range: an error that names it, no crash, and the engine works on."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pyjet.native import ROW_ARGMAX, ROW_HIDDEN, ROW_LOGITS, SEQ_RESET, NativeEngine, NativeError, structs
from pyjet.native.library import STATUS_NAMES, load_library
from pyjet.native.step import STEP_MTP, address, step_input
from tests.native.checked_step import HUGE, LOWEST, good_batch
from tests.support.native_steps import same_bits

# (what is changed, where, value, what the message says)

ROW_CASES = [
    ("tokens", 0, -1, "row_token is -1"),
    ("tokens", 6, 320, "row_token is 320, allowed are 0..319"),
    ("tokens", 2, HUGE, "row_token"),
    ("positions", 0, -1, "row_position is -1"),
    ("positions", 5, 1024, "row_position is 1024, allowed are 0..1023"),
    ("positions", 3, LOWEST, "row_position"),
    ("positions", 2, 3, "row 2 is at position 3, its sequence continues at 2"),
    ("positions", 6, 20, "row 6 is at position 20"),
    ("row_seq", 0, -1, "row_seq is -1"),
    ("row_seq", 6, 2, "row_seq is 2, allowed are 0..1"),
    ("row_seq", 4, 1, "row 4 does not belong to sequence 0"),
    ("row_seq", 5, 0, "row 5 does not belong to sequence 1"),
    ("row_flags", 1, 8, "1 rows want a token sampled, pj_step_in.n_samples is 0"),
    ("row_flags", 1, 16, "row_flags"),
    ("row_flags", 1, 1 << 31, "row_flags"),
    ("page_table", 0, -1, "page_table is -1"),
    ("page_table", 1, 6, "page_table is 6, allowed are 0..5"),
    ("page_table", 2, HUGE, "page_table"),
    ("page_table", 2, 0, "page 0 is written twice"),
    ("page_table", 1, 0, "page 0 is written by sequence 0 and read by sequence 1"),
]
SEQ_CASES = [
    ("state_slot", 0, -1, "pj_seq.state_slot is -1"),
    ("state_slot", 1, 3, "pj_seq.state_slot is 3, allowed are 0..2"),
    ("state_slot", 1, 0, "state slot 0 is used by two sequences"),
    ("row_begin", 0, -1, "pj_seq.row_begin is -1"),
    ("row_begin", 1, 6, "pj_seq.row_begin is 6"),
    ("row_begin", 1, HUGE, "pj_seq.row_begin"),
    ("row_begin", 1, 4, "row 4 does not belong to sequence 1"),
    ("n_rows", 0, 0, "pj_seq.n_rows is 0"),
    ("n_rows", 0, -5, "pj_seq.n_rows is -5"),
    ("n_rows", 1, HUGE, "pj_seq.n_rows"),
    ("n_rows", 0, 4, "the sequences have 6 rows, the step has 7"),
    ("n_spec", 0, -1, "pj_seq.n_spec is -1"),
    ("n_spec", 0, 4, "pj_seq.n_spec is 4, allowed are 0..3"),
    ("n_spec", 1, 3, "pj_seq.n_spec is 3, allowed are 0..2"),
    ("n_accept", 1, 1, "pj_seq.n_accept is 1, allowed are 0..0"),
    ("n_accept", 1, -1, "pj_seq.n_accept is -1"),
    ("n_accept", 0, HUGE, "pj_seq.n_accept"),
    ("page_begin", 0, -1, "pj_seq.page_begin is -1"),
    ("page_begin", 1, 2, "pj_seq.page_begin is 2"),
    ("page_begin", 1, HUGE, "pj_seq.page_begin"),
    ("n_pages", 1, 0, "pj_seq.n_pages is 0"),
    ("n_pages", 1, LOWEST, "pj_seq.n_pages"),
    ("n_pages", 0, 4, "pj_seq.n_pages is 4, allowed are 1..3"),
    ("n_pages", 1, 1, "sequence 1 reaches position 21, its 1 pages hold 16 tokens"),
    ("flags", 0, 2, "pj_seq.flags has unknown bits"),
    ("flags", 1, SEQ_RESET, "sequence 1 resets its state at position 20, not 0"),
]


@pytest.mark.parametrize("name, index, value, message", ROW_CASES)
def test_row_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, index: int, value: int, message: str
) -> None:
    batch = good_batch()
    getattr(batch, name)[index] = value
    with pytest.raises(NativeError) as caught:
        engine.step(batch)
    assert caught.value.kind == "argument" and message in caught.value.message
    healthy()


@pytest.mark.parametrize("name, index, value, message", SEQ_CASES)
def test_seq_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, index: int, value: int, message: str
) -> None:
    batch = good_batch()
    batch.seqs[name][index] = value
    with pytest.raises(NativeError) as caught:
        engine.step(batch)
    assert caught.value.kind == "argument" and message in caught.value.message
    healthy()


def raw_step(engine: NativeEngine, change_in: dict[str, Any], change_out: dict[str, Any]) -> tuple[str, str]:
    """pj_step with fields of the C structures overwritten; returns the status' name and the message."""
    batch = good_batch()
    c_in = step_input(batch, 0, None, engine.n_embd)
    logits, hidden = np.empty((5 + 2, engine.n_vocab), np.float32), np.empty((5, engine.n_embd), np.float32)
    argmax = np.empty(7, np.int32)
    c_out = structs.StepOut(logits.ctypes.data, hidden.ctypes.data, argmax.ctypes.data, 7, 5, 0.0)
    for structure, changes in ((c_in, change_in), (c_out, change_out)):
        for name, value in changes.items():
            setattr(structure, name, value)
    lib = load_library()
    status = lib.pj_step(engine._handle, C.byref(c_in), C.byref(c_out))
    return STATUS_NAMES[status], lib.pj_last_error().decode()


IN_CASES = [
    ("kind", -1, "pj_step_in.kind is -1"),
    ("kind", 2, "pj_step_in.kind is 2"),
    ("kind", STEP_MTP, "row_hidden belongs to MTP steps"),
    ("n_rows", 0, "pj_step_in.n_rows is 0"),
    ("n_rows", 25, "pj_step_in.n_rows is 25, allowed are 1..24"),
    ("n_rows", LOWEST, "pj_step_in.n_rows"),
    ("n_seqs", 0, "pj_step_in.n_seqs is 0"),
    ("n_seqs", 3, "pj_step_in.n_seqs is 3, allowed are 1..2"),
    ("n_seqs", 1, "row_seq is 1, allowed are 0..0"),
    ("n_page_entries", 0, "pj_step_in.n_page_entries is 0"),
    ("n_page_entries", -1, "pj_step_in.n_page_entries is -1"),
    ("n_page_entries", HUGE, "pj_step_in.n_page_entries"),
    ("row_token", None, "row_token is NULL"),
    ("row_position", None, "row_position is NULL"),
    ("row_seq", None, "row_seq is NULL"),
    ("row_flags", None, "row_flags is NULL"),
    ("seqs", None, "seqs is NULL"),
    ("page_table", None, "page_table is NULL"),
    ("row_hidden", 4096, "row_hidden belongs to MTP steps"),
    ("masks_late", 1, "pj_step_in.masks_late is for pj_step_start, not for pj_step"),
]
OUT_CASES = [
    ("logits", None, "7 rows want logits, pj_step_out holds 0"),
    ("logits_rows", 6, "7 rows want logits, pj_step_out holds 6"),
    ("logits_rows", LOWEST, "7 rows want logits"),
    ("hidden", None, "5 rows want hidden rows, pj_step_out holds 0"),
    ("hidden_rows", 4, "5 rows want hidden rows, pj_step_out holds 4"),
    ("argmax", None, "5 rows want argmax, pj_step_out.argmax is NULL"),
]


@pytest.mark.parametrize("name, value, message", IN_CASES)
def test_step_in_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, value: Any, message: str
) -> None:
    status, text = raw_step(engine, {name: value}, {})
    assert status == "argument" and message in text
    healthy()


@pytest.mark.parametrize("name, value, message", OUT_CASES)
def test_step_out_fields(
    engine: NativeEngine, healthy: Callable[[], None], name: str, value: Any, message: str
) -> None:
    status, text = raw_step(engine, {}, {name: value})
    assert status == "argument" and message in text
    healthy()


def test_an_unchanged_raw_step_works(engine: NativeEngine) -> None:
    assert raw_step(engine, {}, {}) == ("ok", "")


def test_a_refused_step_changes_nothing(engine: NativeEngine) -> None:
    """Even when only the last sequence is wrong, the others' states and pages stay as they were."""
    engine.step(good_batch())
    before = engine.state_read(0), engine.pages_read(range(6))
    batch = good_batch()
    batch.seqs["n_accept"][1] = 1
    with pytest.raises(NativeError):
        engine.step(batch)
    assert same_bits(engine.state_read(0), before[0]) and same_bits(engine.pages_read(range(6)), before[1])


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda lib, e: lib.pj_step(None, None, None), "engine is NULL"),
        (lambda lib, e: lib.pj_step(e, None, None), "in is NULL"),
        (lambda lib, e: lib.pj_step(e, C.byref(structs.StepIn()), None), "out is NULL"),
        (lambda lib, e: lib.pj_engine_create(None, None, None), "engine is NULL"),
        (lambda lib, e: lib.pj_engine_create(None, None, C.byref(C.c_void_p())), "model is NULL"),
        (lambda lib, e: lib.pj_state_read(e, 0, None, 0), "host is NULL"),
        (lambda lib, e: lib.pj_state_write(e, 0, None, 0), "host is NULL"),
        (lambda lib, e: lib.pj_state_read(e, 0, 4096, 7), "the buffer has 7 bytes, needed are"),
        (lambda lib, e: lib.pj_pages_read(e, None, 1, 4096, 1), "pages is NULL"),
        (lambda lib, e: lib.pj_pages_copy(e, None, None, -1), "the number of pages is -1"),
        (lambda lib, e: lib.pj_pages_read(e, np.zeros(1, np.int32).ctypes.data, 1, 4096, 7), "the buffer has 7 bytes"),
        (lambda lib, e: lib.pj_state_commit(None, 0, 0), "engine is NULL"),
        (lambda lib, e: lib.pj_engine_info(e, None), "info is NULL"),
    ],
)
def test_missing_pointers_and_wrong_sizes(engine: NativeEngine, call: Callable[..., int], name: str) -> None:
    lib = load_library()
    assert STATUS_NAMES[call(lib, engine._handle)] == "argument"
    assert name in lib.pj_last_error().decode()
    assert (lib.pj_state_bytes(None), lib.pj_page_bytes(None)) == (0, 0)
    lib.pj_engine_destroy(None)


def test_flags_have_the_documented_values() -> None:
    assert (ROW_LOGITS, ROW_ARGMAX, ROW_HIDDEN, SEQ_RESET) == (1, 2, 4, 1)
    with pytest.raises(NativeError, match="x must be"):
        address("x", np.zeros(2, np.float32), np.dtype(np.int32), (2,))
