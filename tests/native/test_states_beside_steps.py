"""States read and written while a step computes that does not have their slots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from pyjet.native import ROW_SAMPLE, EngineConfig, NativeEngine, NativeError, StepBatch
from pyjet.native.host_memory import UInt8Array
from tests.native.conftest import MakeModel
from tests.native.test_late_masks import OK, RawStep
from tests.native.test_sampling import N_VOCAB, masked, short_sequences
from tests.support.native_steps import Part, make_batch, same_bits

TOKENS = np.random.default_rng(7).integers(0, N_VOCAB, 60).tolist()
N_HEAD, PAGES = 40, [9, 2, 5, 11]
KEPT, COPY, OTHER = 3, 4, 5  # slots that the step beside does not have
HANGS = 60.0  # seconds


@pytest.fixture(scope="module")
def engine(tiny_model: MakeModel) -> Iterator[NativeEngine]:
    config = EngineConfig(n_pages=24, n_state_slots=6, page_tokens=16, max_rows=100, max_spec=3, n_threads=2)
    with NativeEngine(tiny_model("Q4_K_M"), config) as engine:
        yield engine


@pytest.fixture
def state(engine: NativeEngine) -> UInt8Array:
    """Of N_HEAD tokens, which are in slot KEPT; noise in the slots COPY and OTHER."""
    engine.step(make_batch(Part(TOKENS[:N_HEAD], slot=KEPT, pages=PAGES, flags=0)))
    for slot in (COPY, OTHER):
        engine.state_write(slot, np.full(engine.state_bytes, 61, np.uint8))
    return engine.state_read(KEPT)


@pytest.fixture
def expected(engine: NativeEngine, state: UInt8Array) -> np.ndarray:
    """Logits of the tokens that follow."""
    return tail(engine, COPY, state)


def tail(engine: NativeEngine, slot: int, state: UInt8Array | None = None) -> np.ndarray:
    """Logits behind a state; ``state``: written to the slot before."""
    if state is not None:
        engine.state_write(slot, state)
    return engine.step(make_batch(Part(TOKENS[N_HEAD:], N_HEAD, slot, PAGES))).logits.copy()


def other_batch() -> StepBatch:
    """Two sequences in slots 0 and 1."""
    return make_batch(Part(TOKENS[:50], slot=0, pages=[0, 1, 3, 4]), Part(TOKENS[7:27], slot=1, pages=[6, 7]))


def pinned(engine: NativeEngine) -> UInt8Array:
    data = engine.host_memory(engine.state_bytes)
    data[:] = 99
    return data


@pytest.mark.parametrize("target", [pinned, lambda _: None])
def test_a_state_read_beside_a_step_is_the_one_before_it(
    engine: NativeEngine, state: UInt8Array, target: Callable[[NativeEngine], UInt8Array | None]
) -> None:
    alone = engine.step(other_batch()).logits.copy()
    read: list[UInt8Array] = []
    result = engine.step(other_batch(), lambda: read.append(engine.state_read(KEPT, target(engine))))
    assert same_bits(result.logits, alone)
    assert same_bits(read[0], state) and same_bits(engine.state_read(KEPT), state)


def test_a_copy_inside_just_before_the_step_is_read_beside_it(engine: NativeEngine, state: UInt8Array) -> None:
    """Whoever copies inside the device does not wait for it."""
    read: list[UInt8Array] = []
    engine.state_copy(KEPT, COPY)
    engine.step(other_batch(), lambda: read.append(engine.state_read(COPY, pinned(engine))))
    assert same_bits(read[0], state)


def test_a_state_written_beside_a_step_is_gone_on_from(engine: NativeEngine, expected: np.ndarray) -> None:
    state = engine.state_read(KEPT)
    alone = engine.step(other_batch()).logits.copy()
    result = engine.step(other_batch(), lambda: engine.state_write(OTHER, state))
    assert same_bits(result.logits, alone)
    assert same_bits(tail(engine, OTHER), expected)


def test_a_slot_that_was_read_may_be_overwritten_at_once(engine: NativeEngine, state: UInt8Array) -> None:
    read: list[UInt8Array] = []
    engine.step(other_batch(), lambda: read.append(engine.state_read(KEPT, pinned(engine))))
    engine.state_copy(OTHER, KEPT)
    engine.step(make_batch(Part(TOKENS[:3], slot=KEPT, pages=[20])))
    assert same_bits(read[0], state)


def test_one_slot_after_the_other_beside_one_step(
    engine: NativeEngine, state: UInt8Array, expected: np.ndarray
) -> None:
    moved = pinned(engine)

    def move() -> None:
        engine.state_read(KEPT, moved)
        engine.state_write(OTHER, moved)
        engine.state_write(COPY, engine.state_read(OTHER))

    engine.step(other_batch(), move)
    assert same_bits(engine.state_read(COPY), state)
    assert same_bits(tail(engine, COPY), expected) and same_bits(tail(engine, OTHER), expected)


def test_copies_do_not_wait_for_the_step(engine: NativeEngine, state: UInt8Array) -> None:
    """A step that waits for masks does not end before the copy has: this one could never end."""
    batch, _ = masked(short_sequences(2, ROW_SAMPLE), np.random.default_rng(3), N_VOCAB)
    tokens = engine.step(batch).sampled.tolist()
    moved, result = pinned(engine), []

    def fill() -> None:
        engine.state_read(KEPT, moved)
        engine.state_write(OTHER, moved)

    late = replace(batch, fill_masks=fill)
    thread = threading.Thread(target=lambda: result.extend(engine.step(late).sampled.tolist()), daemon=True)
    thread.start()
    thread.join(HANGS)
    assert result == tokens
    assert same_bits(moved, state) and same_bits(engine.state_read(OTHER), state)


@pytest.mark.parametrize("slot, sequence", [(0, 0), (1, 1)])
def test_slots_of_the_step_are_refused(engine: NativeEngine, state: UInt8Array, slot: int, sequence: int) -> None:
    alone = engine.step(other_batch()).logits.copy()
    message = f"state slot {slot} belongs to sequence {sequence} of the step that has been started"
    for call in (lambda: engine.state_read(slot), lambda: engine.state_write(slot, state)):
        with pytest.raises(NativeError, match=message) as caught:
            engine.step(other_batch(), call)
        assert caught.value.kind == "argument"
    assert same_bits(engine.step(other_batch()).logits, alone)
    assert len(engine.state_read(slot)) == engine.state_bytes  # no step computes any more


@pytest.mark.parametrize(
    "call",
    [
        lambda e: e.state_copy(KEPT, COPY),
        lambda e: e.state_reset(KEPT),
        lambda e: e.state_commit(KEPT, 0),
        lambda e: e.pages_read([PAGES[0]]),
        lambda e: e.pages_copy([PAGES[0]], [20]),
        lambda e: e.step(other_batch()),
    ],
)
def test_nothing_else_may_come_beside_a_step(
    engine: NativeEngine, state: UInt8Array, call: Callable[[NativeEngine], object]
) -> None:
    with pytest.raises(NativeError, match="a step has been started; wait for it first"):
        engine.step(other_batch(), lambda: call(engine))
    assert same_bits(engine.state_read(KEPT), state)


def test_slots_and_sizes_are_checked_beside_a_step(engine: NativeEngine, state: UInt8Array) -> None:
    with pytest.raises(NativeError, match=r"state slot 6 is outside 0\.\.5"):
        engine.step(other_batch(), lambda: engine.state_read(6))
    with pytest.raises(NativeError, match="state must be a contiguous"):
        engine.step(other_batch(), lambda: engine.state_write(KEPT, state[1:]))
    assert same_bits(engine.state_read(KEPT), state)


def test_a_step_that_failed_to_start_is_no_step(engine: NativeEngine, state: UInt8Array) -> None:
    raw = RawStep(engine, other_batch(), late=2)
    assert raw.start()[0] == "argument"
    assert len(engine.state_read(0)) == engine.state_bytes and same_bits(engine.state_read(KEPT), state)


def test_between_start_and_wait(engine: NativeEngine, state: UInt8Array) -> None:
    raw = RawStep(engine, other_batch(), late=0)
    assert raw.start() == OK
    assert same_bits(engine.state_read(KEPT, pinned(engine)), state)
    with pytest.raises(NativeError, match="state slot 0 belongs to sequence 0"):
        engine.state_read(0)
    assert raw.wait() == OK
    assert len(engine.state_read(0)) == engine.state_bytes
