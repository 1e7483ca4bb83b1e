"""Masks that are filled while a step computes: the tokens of masks that were there before it, and never a hang."""

from __future__ import annotations

import ctypes as C
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyjet.model.reader import Model
from pyjet.native import ROW_LOGITS, ROW_SAMPLE, EngineConfig, NativeEngine, NativeError, StepBatch, structs
from pyjet.native.library import STATUS_NAMES, load_library
from pyjet.native.step import STEP_TRUNK, step_input
from tests.native.conftest import MakeModel
from tests.native.test_sampling import N_SLOTS, N_VOCAB, masked, short_sequences
from tests.support.native_steps import Part, make_batch

CONFIG = {"n_pages": 64, "n_state_slots": N_SLOTS, "page_tokens": 16, "max_rows": 100, "max_spec": 3, "n_threads": 2}
WAITED = 0.03  # seconds in which a GPU computes such a step and comes to where it needs masks


@pytest.fixture(scope="module")
def model(tiny_model: MakeModel) -> Model:
    return tiny_model("Q4_K_M")


@pytest.fixture(scope="module")
def engine(model: Model) -> Iterator[NativeEngine]:
    with NativeEngine(model, EngineConfig(**CONFIG)) as engine:
        yield engine


def masked_batch(seed: int, n_seqs: int = 4) -> StepBatch:
    batch, _ = masked(short_sequences(n_seqs, ROW_SAMPLE), np.random.default_rng(seed), N_VOCAB)
    return batch


def made_late(batch: StepBatch, seconds: float = 0.0) -> StepBatch:
    """The same with masks that allow nothing until they are filled, so long after the step was started."""
    masks = np.zeros_like(batch.masks)

    def fill() -> None:
        time.sleep(seconds)
        masks[:] = batch.masks

    return replace(batch, masks=masks, fill_masks=fill)


# 40 sequences: more rows than the CUDA backend chooses tokens for at a time
@pytest.mark.parametrize("n_seqs", [2, 4, N_SLOTS])
@pytest.mark.parametrize("seconds", [0.0, WAITED])
def test_tokens_are_those_of_masks_that_were_there(engine: NativeEngine, n_seqs: int, seconds: float) -> None:
    for seed in range(3):
        batch = masked_batch(seed, n_seqs)
        expected = engine.step(batch).sampled.tolist()
        assert engine.step(made_late(batch, seconds)).sampled.tolist() == expected
        assert max(expected) >= 0


def test_masks_of_an_earlier_step_do_not_count(engine: NativeEngine) -> None:
    """Steps with masks early and late, and without, one after the other."""
    batches = [masked_batch(seed) for seed in range(8)]
    expected = [engine.step(batch).sampled.tolist() for batch in batches]
    for i, batch in enumerate([*batches, *batches]):
        assert engine.step(made_late(batch, WAITED * (i % 2))).sampled.tolist() == expected[i % 8]
        if i % 3 == 0:
            engine.step(short_sequences(4, ROW_LOGITS))
            assert engine.step(batch).sampled.tolist() == expected[i % 8]
    assert len({tuple(tokens) for tokens in expected}) == 8


def test_other_rows_and_logits_of_a_step_with_late_masks(engine: NativeEngine) -> None:
    batch, _ = masked(short_sequences(8), np.random.default_rng(1), N_VOCAB)
    expected = engine.step(batch)
    logits, sampled = expected.logits.copy(), expected.sampled.tolist()
    result = engine.step(made_late(batch, WAITED))
    assert np.array_equal(result.logits, logits) and result.sampled.tolist() == sampled


def test_what_comes_meanwhile_comes_behind_the_masks(engine: NativeEngine) -> None:
    batch, order = made_late(masked_batch(1)), []
    filled = replace(batch, fill_masks=lambda: order.append("masks"))
    engine.step(filled, lambda: order.append("meanwhile"))
    assert order == ["masks", "meanwhile"]


def test_a_late_step_without_masks(engine: NativeEngine) -> None:
    calls: list[int] = []
    batch = make_batch(Part([5, 6]))
    expected = engine.step(batch).logits.copy()
    result = engine.step(replace(batch, fill_masks=lambda: calls.append(1)))
    assert np.array_equal(result.logits, expected) and calls == [1]


@pytest.mark.parametrize("error", [ValueError("no masks"), KeyboardInterrupt()])
def test_an_error_while_masks_are_filled_comes_out(engine: NativeEngine, error: BaseException) -> None:
    batch = masked_batch(5)
    expected = engine.step(batch).sampled.tolist()

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        engine.step(replace(batch, fill_masks=fail))
    assert caught.value is error
    assert engine.step(made_late(batch)).sampled.tolist() == expected


class NotingLibrary:
    """Notes what a step is told of its masks."""

    def __init__(self) -> None:
        self._lib = load_library()
        self.told: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)

    def pj_masks_ready(self, engine: Any, is_ok: bool) -> int:
        self.told.append(is_ok)
        return int(self._lib.pj_masks_ready(engine, is_ok))


def test_a_step_is_told_whether_there_are_masks(engine: NativeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    library = NotingLibrary()
    monkeypatch.setattr(engine, "_lib", library)
    batch = masked_batch(5)
    engine.step(made_late(batch))
    with pytest.raises(ZeroDivisionError):
        engine.step(replace(batch, fill_masks=lambda: 1 // 0))
    engine.step(batch)
    assert library.told == [True, False]


class RawStep:
    """A step in its parts. Its results go to memory that is not pinned."""

    def __init__(self, engine: NativeEngine, batch: StepBatch, late: int = 1) -> None:
        self._handle, self._lib, self._batch = engine._handle, load_library(), batch
        n_rows = len(batch.tokens)
        self._logits = np.empty((n_rows, engine.n_vocab), np.float32)
        self._argmax, self.sampled = np.full((2, n_rows), -2, np.int32)
        self._in = step_input(batch, STEP_TRUNK, None, engine.n_embd)
        self._in.masks_late = late
        self._out = structs.StepOut(
            self._logits.ctypes.data, None, self._argmax.ctypes.data, n_rows, 0, 0.0, self.sampled.ctypes.data
        )  # fmt: skip

    def _status(self, status: int) -> tuple[str, str]:
        return STATUS_NAMES[status], self._lib.pj_last_error().decode()

    def step(self) -> tuple[str, str]:
        return self._status(self._lib.pj_step(self._handle, C.byref(self._in), C.byref(self._out)))

    def start(self) -> tuple[str, str]:
        return self._status(self._lib.pj_step_start(self._handle, C.byref(self._in), C.byref(self._out)))

    def ready(self, is_ok: int = 1) -> tuple[str, str]:
        return self._status(self._lib.pj_masks_ready(self._handle, is_ok))

    def wait(self) -> tuple[str, str]:
        return self._status(self._lib.pj_step_wait(self._handle))


OK = ("ok", "")
NONE_WAITS = ("argument", "no step waits for masks")
FAILED = ("cancelled", "the masks of the step could not be made")


@pytest.fixture
def healthy(engine: NativeEngine) -> Iterator[None]:
    """The engine computes afterwards what it computed before."""
    batch = masked_batch(7)
    expected = engine.step(batch).sampled.tolist()
    yield
    assert engine.step(batch).sampled.tolist() == expected
    assert engine.step(made_late(batch)).sampled.tolist() == expected


def test_ready_comes_once(engine: NativeEngine, healthy: None) -> None:
    batch = masked_batch(3)
    expected = engine.step(batch).sampled.tolist()
    raw = RawStep(engine, batch)
    assert raw.ready() == NONE_WAITS
    assert raw.start() == OK and raw.ready() == OK
    assert raw.ready() == NONE_WAITS and raw.ready(0) == NONE_WAITS
    assert raw.wait() == OK and raw.sampled.tolist() == expected
    assert raw.ready() == NONE_WAITS and raw.wait()[0] == "argument"


def test_ready_from_another_thread(engine: NativeEngine, healthy: None) -> None:
    batch = masked_batch(3)
    expected = engine.step(batch).sampled.tolist()
    raw, statuses = RawStep(engine, batch), []
    assert raw.start() == OK
    thread = threading.Thread(target=lambda: statuses.append(raw.ready()))
    thread.start()
    thread.join()
    assert raw.wait() == OK and raw.sampled.tolist() == expected and statuses == [OK]


def test_masks_that_could_not_be_made(engine: NativeEngine, healthy: None) -> None:
    raw = RawStep(engine, masked_batch(3))
    assert raw.start() == OK and raw.ready(0) == OK and raw.wait() == FAILED


def test_a_step_that_is_waited_for_without_its_masks(engine: NativeEngine, healthy: None) -> None:
    raw = RawStep(engine, masked_batch(3))
    assert raw.start() == OK and raw.wait() == FAILED


def test_a_step_that_is_not_late_needs_no_word(engine: NativeEngine, healthy: None) -> None:
    batch = masked_batch(3)
    expected = engine.step(batch).sampled.tolist()
    raw = RawStep(engine, batch, late=0)
    assert raw.start() == OK and raw.ready() == NONE_WAITS and raw.wait() == OK
    assert raw.sampled.tolist() == expected


def test_steps_that_do_not_begin(engine: NativeEngine, healthy: None) -> None:
    raw = RawStep(engine, masked_batch(3), late=2)
    assert raw.start() == ("argument", "pj_step_in.masks_late is 2, allowed are 0..1")
    assert raw.ready() == NONE_WAITS and raw.ready(0) == NONE_WAITS
    raw = RawStep(engine, masked_batch(3))
    assert raw.step() == ("argument", "pj_step_in.masks_late is for pj_step_start, not for pj_step")


def test_ready_without_an_engine() -> None:
    lib = load_library()
    assert STATUS_NAMES[lib.pj_masks_ready(None, 1)] == "argument"


def test_only_ready_may_come_between_start_and_wait(engine: NativeEngine, healthy: None) -> None:
    raw = RawStep(engine, masked_batch(3))
    assert raw.start() == OK
    with pytest.raises(NativeError, match="a step has been started"):
        engine.state_reset(0)
    assert raw.start()[0] == "argument"
    assert raw.ready() == OK and raw.wait() == OK


@pytest.mark.parametrize("goes_on", [lambda raw: None, lambda raw: raw.ready(0), lambda raw: raw.ready(1)])
def test_an_engine_that_closes_while_a_step_waits(model: Model, goes_on: Callable[[RawStep], object]) -> None:
    with NativeEngine(model, EngineConfig(**CONFIG)) as engine:
        raw = RawStep(engine, masked_batch(3))
        assert raw.start() == OK
        goes_on(raw)
