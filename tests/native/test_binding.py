"""The binding on the real library with the embedded model: values arrive, errors become NativeErrors."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pyjet.assets import default_model_path
from pyjet.model.reader import Model, load_model
from pyjet.native import (
    NO_DRAFTS,
    ROW_ARGMAX,
    ROW_HIDDEN,
    ROW_LOGITS,
    SEQ_DTYPE,
    SEQ_RESET,
    EngineConfig,
    NativeEngine,
    NativeError,
    StepBatch,
    build_info,
    cpu_isa,
    dequantize,
    library,
    matmul,
)

CONFIG = EngineConfig(n_pages=8, n_state_slots=2, page_tokens=16, max_rows=16, n_threads=1, profile=True)
F32, Q8_0 = 0, 8
ALL = ROW_LOGITS | ROW_ARGMAX | ROW_HIDDEN


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model(default_model_path())


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[NativeEngine]:
    with NativeEngine(model, CONFIG) as engine:
        yield engine


def batch(
    tokens: list[int], *, slot: int = 0, start: int = 0, pages: tuple[int, ...] = (0,), flags: int = ALL
) -> StepBatch:
    n = len(tokens)
    seqs = np.zeros(1, SEQ_DTYPE)
    seqs[0] = (slot, 0, n, 0, 0, 0, len(pages), SEQ_RESET if start == 0 else 0, *NO_DRAFTS)
    return StepBatch(
        np.array(tokens, np.int32),
        np.arange(start, start + n, dtype=np.int32),
        np.zeros(n, np.int32),
        np.full(n, flags, np.uint32),
        seqs,
        np.array(pages, np.int32),
    )


def test_step_returns_the_flagged_rows(engine: NativeEngine) -> None:
    result = engine.step(batch([5, 6, 7]))
    assert result.logits.shape == (3, engine.n_vocab) and result.hidden.shape == (3, engine.n_embd)
    assert result.argmax.tolist() == result.logits.argmax(axis=1).tolist()
    assert np.isfinite(result.logits).all() and result.step_us > 0
    last_only = batch([5, 6, 7], flags=0)
    last_only.row_flags[2] = ROW_LOGITS
    expected = result.logits[2].copy()
    result = engine.step(last_only)
    assert result.argmax.tolist() == [-1, -1, -1]
    assert np.array_equal(result.logits, expected[None])


def test_a_saved_state_and_page_continue_in_another_place(engine: NativeEngine) -> None:
    engine.step(batch([5, 6, 7], slot=0, pages=(1,)))
    state, pages = engine.state_read(0), engine.pages_read([1])
    expected = engine.step(batch([8], slot=0, start=3, pages=(1,))).logits.copy()
    assert state.shape == (engine.state_bytes,) and pages.shape == (1, engine.page_bytes)
    engine.state_write(1, state)
    engine.pages_write([4], pages)
    engine.pages_copy([4], [6])
    assert np.array_equal(engine.step(batch([8], slot=1, start=3, pages=(6,))).logits, expected)
    engine.state_copy(1, 0)
    assert np.array_equal(engine.state_read(0), engine.state_read(1))
    engine.state_reset(1)
    engine.state_commit(1, 0)
    assert not engine.state_read(1).any()


def test_mtp_runs(engine: NativeEngine) -> None:
    hidden = engine.step(batch([5, 6, 7], pages=(2,))).hidden.copy()
    draft = batch([6, 7, 9], pages=(2,))
    draft.seqs["flags"] = 0  # the block has no recurrent state that could be reset
    result = engine.mtp(draft, hidden)
    assert np.isfinite(result.logits).all()
    with pytest.raises(NativeError, match="hidden must be a contiguous"):
        engine.mtp(batch([6]), hidden)


def test_info_and_op_times(engine: NativeEngine) -> None:
    info = engine.info()
    assert (info.device, info.n_threads) == ("cpu", 1)
    assert info.weight_bytes > 10_000_000 and info.kv_bytes == 8 * engine.page_bytes
    engine.step(batch([1]))
    assert all(op.calls > 0 and op.name for op in engine.op_times()) and engine.op_times()


def test_arrays_are_checked_before_they_are_passed(engine: NativeEngine) -> None:
    good = batch([1, 2, 3])
    for field, bad in [
        ("tokens", good.tokens.astype(np.int64)),
        ("positions", good.positions[:2]),
        ("row_seq", np.zeros(6, np.int32)[::2]),
        ("seqs", np.zeros((1, 8), np.int32)),
    ]:
        with pytest.raises(NativeError, match=f"{field} must be a contiguous"):
            engine.step(replace(good, **{field: bad}))
    with pytest.raises(NativeError, match="larger than max_rows"):
        engine.step(batch([1] * 17))
    with pytest.raises(NativeError, match="state must be a contiguous"):
        engine.state_write(0, np.zeros(3, np.uint8))
    with pytest.raises(NativeError, match="cannot be copied"):
        engine.pages_copy([1, 2], [3])


@pytest.mark.parametrize(
    "bad",
    [
        batch([1 << 30]),
        batch([-1]),
        batch([1], slot=2),
        batch([1], pages=(8,)),
        batch([1], start=16, pages=(0,)),
    ],
)
def test_the_library_refuses_values_out_of_range(engine: NativeEngine, bad: StepBatch) -> None:
    with pytest.raises(NativeError) as caught:
        engine.step(bad)
    assert caught.value.kind == "argument" and caught.value.message
    engine.step(batch([1]))


def test_progress_can_cancel_and_its_exceptions_come_out(model: Model) -> None:
    with pytest.raises(NativeError) as caught:
        NativeEngine(model, CONFIG, lambda _stage, _done, _total: False)
    assert caught.value.kind == "cancelled"

    def fail(stage: str, done: int, total: int) -> None:
        raise KeyError(stage)

    with pytest.raises(KeyError):
        NativeEngine(model, CONFIG, fail)


def test_closed_engine_and_unknown_names(model: Model) -> None:
    engine = NativeEngine(model, CONFIG)
    engine.close()
    engine.close()
    with pytest.raises(NativeError, match="closed"):
        engine.step(batch([1]))
    with pytest.raises(NativeError, match="kv_type_k 'f64' is unknown; use one of f16, q8_0"):
        NativeEngine(model, replace(CONFIG, kv_type_k="f64"))  # type: ignore[arg-type]
    with pytest.raises(NativeError):
        NativeEngine(model, replace(CONFIG, page_tokens=17))


def test_single_ops() -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((8, 64), np.float32)
    x = rng.standard_normal((3, 64), np.float32)
    y, us = matmul(F32, weight.view(np.uint8).reshape(-1), 64, 8, x)
    assert np.allclose(y, x @ weight.T, rtol=0.03, atol=0.3) and us >= 0
    blocks = np.zeros(2, np.dtype([("d", np.float16), ("q", np.int8, 32)]))
    blocks["d"] = 0.5
    blocks["q"] = np.arange(64).reshape(2, 32)
    assert np.array_equal(dequantize(Q8_0, blocks.view(np.uint8), 64, 1)[0], np.arange(64) / 2)
    with pytest.raises(NativeError, match=r"raw bytes"):
        dequantize(F32, weight, 64, 8)  # type: ignore[arg-type]
    with pytest.raises(NativeError, match="x must have shape"):
        matmul(F32, weight.view(np.uint8).reshape(-1), 64, 8, x[:, :5])


def test_build_info_names_the_instruction_set() -> None:
    assert build_info().startswith("pyjet ")
    assert cpu_isa() in build_info()


def test_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYJET_LIBRARY", "nowhere/libpyjet.so")
    with pytest.raises(NativeError, match="PYJET_LIBRARY names nowhere") as caught:
        library.library_path()
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message
