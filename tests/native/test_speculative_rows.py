"""Speculative rows: whatever was drafted, the accepted rows leave the bits that they leave without drafts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pyjet.native import EngineConfig, NativeEngine, NativeError
from tests.native.conftest import MakeModel
from tests.support.native_steps import Part, make_batch, run_alone, same_bits

N_VOCAB, MAX_SPEC, N_PROMPT = 7424, 5, 37
TOKENS = np.random.default_rng(21).integers(0, N_VOCAB, 80).tolist()
PAGES = range(2)


def wrong(token: int) -> int:
    return (token + 1234) % N_VOCAB


@pytest.fixture(scope="module", params=["f16", "q8_0"])
def engine(request: pytest.FixtureRequest, tiny_model: MakeModel) -> Iterator[NativeEngine]:
    config = EngineConfig(
        n_pages=16, n_state_slots=4, max_rows=128, max_spec=MAX_SPEC, n_threads=2, kv_type_k=request.param,
        kv_type_v=request.param,
    )  # fmt: skip
    with NativeEngine(tiny_model("Q4_K_M"), config) as engine:
        yield engine


@pytest.fixture(scope="module")
def expected(engine: NativeEngine) -> np.ndarray:
    """Logits of TOKENS without speculation."""
    return run_alone(engine, TOKENS, len(TOKENS), slot=3, pages=range(14, 16))


def state_after(engine: NativeEngine, n: int) -> np.ndarray:
    """State after the first n tokens without speculation; uses slot 3 and the last pages."""
    run_alone(engine, TOKENS[:n], n, slot=3, pages=range(14, 16))
    return engine.state_read(3)


def prefill(engine: NativeEngine, slot: int = 0, pages: range = PAGES) -> None:
    engine.step(make_batch(Part(TOKENS[:N_PROMPT], slot=slot, pages=pages, flags=0)))


def drafts(start: int, n: int, n_right: int) -> list[int]:
    """n tokens at ``start`` of which only the first n_right are those of TOKENS."""
    return [token if i < n_right else wrong(token) for i, token in enumerate(TOKENS[start : start + n])]


@pytest.mark.parametrize("by_commit", [False, True])
@pytest.mark.parametrize("n_spec", range(1, MAX_SPEC + 1))
def test_every_number_of_accepted_rows(
    engine: NativeEngine, expected: np.ndarray, n_spec: int, by_commit: bool
) -> None:
    """One certain row and n_spec drafts of which n_accept are right; wrong ones at every position roll back."""
    for n_accept in range(n_spec + 1):
        prefill(engine)
        rows = [TOKENS[N_PROMPT], *drafts(N_PROMPT + 1, n_spec, n_accept)]
        logits = engine.step(make_batch(Part(rows, N_PROMPT, pages=PAGES, n_spec=n_spec))).logits
        right = N_PROMPT + 1 + n_accept
        assert same_bits(logits[: 1 + n_accept], expected[N_PROMPT:right])
        if by_commit:
            engine.state_commit(0, n_accept)
            assert same_bits(engine.state_read(0), state_after(engine, right))
        part = Part(TOKENS[right : right + 7], right, pages=PAGES, n_accept=0 if by_commit else n_accept)
        assert same_bits(engine.step(make_batch(part)).logits, expected[right : right + 7]), n_accept


def test_pending_rows_are_not_part_of_the_state(engine: NativeEngine) -> None:
    prefill(engine)
    before = engine.state_read(0)
    rows = Part(drafts(N_PROMPT, 4, 4), N_PROMPT, pages=PAGES, n_spec=4)  # all rows speculative
    engine.step(make_batch(rows))
    assert same_bits(engine.state_read(0), before)
    engine.state_commit(0, 4)
    assert same_bits(engine.state_read(0), state_after(engine, N_PROMPT + 4))
    with pytest.raises(NativeError, match="slot 0 has 0 pending rows"):
        engine.state_commit(0, 1)


def test_fewer_accepted_rows_than_convolution_taps(engine: NativeEngine) -> None:
    """The window of a step with 1, 2 or 3 accepted rows mixes old inputs with new ones, also twice in a row."""
    prefill(engine)
    position, n_accept = N_PROMPT, 0
    for n_right in (1, 0, 2, 1, 3, 0, 0, 4):
        rows = drafts(position, 5, n_right)
        engine.step(make_batch(Part(rows, position, pages=PAGES, n_spec=5, n_accept=n_accept)))
        position, n_accept = position + n_right, n_right
    engine.state_commit(0, n_accept)
    assert same_bits(engine.state_read(0), state_after(engine, position))


def test_draft_by_draft_to_the_end(engine: NativeEngine, expected: np.ndarray) -> None:
    """A whole continuation with random drafts: every row that counted has the bits of the plain run."""
    prefill(engine)
    rng = np.random.default_rng(3)
    position, n_accept = N_PROMPT, 0
    while position < len(TOKENS):
        n_spec = min(int(rng.integers(0, MAX_SPEC + 1)), len(TOKENS) - position - 1)
        n_right = int(rng.integers(0, n_spec + 1))
        rows = [TOKENS[position], *drafts(position + 1, n_spec, n_right)]
        part = Part(rows, position, pages=PAGES, n_spec=n_spec, n_accept=n_accept)
        logits = engine.step(make_batch(part)).logits
        assert same_bits(logits[: 1 + n_right], expected[position : position + 1 + n_right])
        position, n_accept = position + 1 + n_right, n_right


def test_several_sequences_at_once(engine: NativeEngine, expected: np.ndarray) -> None:
    """Three sequences with other numbers of drafts and of right ones, and other acceptance, in each step."""
    slots = {0: range(2), 1: range(2, 4), 2: range(4, 6)}
    rng = np.random.default_rng(4)
    position, n_accept = dict.fromkeys(slots, N_PROMPT), dict.fromkeys(slots, 0)
    for slot, pages in slots.items():
        prefill(engine, slot, pages)
    for _ in range(6):
        parts, right = [], {}
        for slot in rng.permutation(list(slots)).tolist():
            n_spec = int(rng.integers(0, MAX_SPEC + 1))
            right[slot] = int(rng.integers(0, n_spec + 1))
            rows = [TOKENS[position[slot]], *drafts(position[slot] + 1, n_spec, right[slot])]
            parts.append(Part(rows, position[slot], slot, slots[slot], n_spec, n_accept[slot]))
        logits, row = engine.step(make_batch(*parts)).logits, 0
        for part in parts:
            n = 1 + right[part.slot]
            assert same_bits(logits[row : row + n], expected[part.start : part.start + n])
            row += len(part.tokens)
            position[part.slot], n_accept[part.slot] = part.start + n, right[part.slot]
    for slot in slots:
        engine.state_commit(slot, n_accept[slot])
        assert same_bits(engine.state_read(slot), state_after(engine, position[slot]))


def test_a_wrongly_accepted_row_is_seen(engine: NativeEngine, expected: np.ndarray) -> None:
    """Negative control: one accepted row too many or too few changes the bits."""
    for n_accept in (0, 1, 3):
        prefill(engine)
        rows = [TOKENS[N_PROMPT], *drafts(N_PROMPT + 1, 3, 2)]
        engine.step(make_batch(Part(rows, N_PROMPT, pages=PAGES, n_spec=3)))
        start = N_PROMPT + 3
        part = Part(TOKENS[start : start + 1], start, pages=PAGES, n_accept=n_accept)
        assert not same_bits(engine.step(make_batch(part)).logits, expected[start : start + 1]), n_accept


@pytest.mark.parametrize("drop", ["reset", "copy", "write", "reset flag"])
def test_pending_rows_are_dropped(engine: NativeEngine, expected: np.ndarray, drop: str) -> None:
    """Whatever replaces a slot's state also forgets its pending rows."""
    prefill(engine)
    engine.step(make_batch(Part(drafts(N_PROMPT, 3, 3), N_PROMPT, pages=PAGES, n_spec=3)))
    if drop == "reset":
        engine.state_reset(0)
    elif drop == "copy":
        engine.state_copy(3, 0)
    elif drop == "write":
        engine.state_write(0, engine.state_read(3))
    else:
        assert same_bits(engine.step(make_batch(Part(TOKENS[:9], pages=PAGES))).logits, expected[:9])
    with pytest.raises(NativeError, match="n_accept is 1"):
        engine.state_commit(0, 1)
