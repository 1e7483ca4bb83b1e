"""Slots that are saved, restored and erased: the answer goes on with the same bits, and bad files change nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyjet.assets import default_model_path
from pyjet.engine.client import SlotActionError
from pyjet.engine.local import LocalEngine
from pyjet.engine.request import FinishedEvent, GenerationRequest, SamplingParams, StartedEvent, TokenEvent
from pyjet.engine.settings import EngineSettings
from pyjet.engine.slot_file import SlotFileError, SlotFileOwner, read_slot_file, write_slot_file
from pyjet.engine.snapshot import Snapshot
from tests.engine.core_run import expected, request
from tests.engine.fake_native import LIMITS, FakeNative

OWNER = SlotFileOwner("model", "cpu f16 f16", page_tokens=4, page_bytes=24, state_bytes=10)
SNAPSHOT = Snapshot(np.arange(6, dtype=np.int32), np.full((2, 24), 7, np.uint8), np.arange(10, dtype=np.uint8))
PROMPT = tuple(range(20))
N_HEADER_AT = 12  # behind magic and version


def ask(engine: LocalEngine, name: str, prompt: tuple[int, ...] = PROMPT, **fields: object) -> tuple[list[int], int]:
    """The answer, and how many tokens of the prompt were read for it."""
    asked = request(name, prompt=prompt, id_slot=1, **fields)
    events = list(engine.submit(asked))
    assert isinstance(events[-1], FinishedEvent)
    tokens = [event.token for event in events if isinstance(event, TokenEvent)]
    assert tokens == expected(asked)[0]
    return tokens, events[-1].timings.prompt_n


def fake_engine(has_state: bool = True, **limits: object) -> LocalEngine:
    sizes = replace(LIMITS, model="m", layout="l", **limits)
    return LocalEngine(FakeNative(sizes, has_state=has_state), sizes)


@pytest.mark.parametrize("has_state", [True, False])
def test_saved_in_one_engine_and_restored_in_another(tmp_path: Path, has_state: bool) -> None:
    path = str(tmp_path / "slot.bin")
    with fake_engine(has_state) as engine:
        answer, _ = ask(engine, "a")
        saved = engine.slot_action(1, "save", path)
    assert (saved.n_tokens, saved.n_bytes) == (23, Path(path).stat().st_size)
    with fake_engine(has_state) as engine:
        restored = engine.slot_action(4, "restore", path)
        assert (restored.n_tokens, restored.n_bytes) == (23, saved.n_bytes)
        assert ask(engine, "b", (*PROMPT, *answer, 5))[1] == 2
        assert engine.slots()[1].n_tokens > 0


@pytest.mark.parametrize("has_state", [True, False])
def test_erased_means_everything_is_read_again(has_state: bool) -> None:
    with fake_engine(has_state) as engine:
        ask(engine, "a")
        assert ask(engine, "b")[1] == 1
        assert engine.slot_action(1, "erase").n_tokens == 23
        assert engine.slot_action(1, "erase").n_tokens == 0
        assert ask(engine, "c")[1] == len(PROMPT)


def test_an_action_waits_until_its_slot_is_free() -> None:
    gate = threading.Semaphore(0)
    limits = replace(LIMITS, model="m")
    with LocalEngine(FakeNative(limits, gate), limits) as engine:
        stream = engine.submit(request("a", prompt=PROMPT, id_slot=1))
        assert isinstance(stream.get(10), StartedEvent)
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(engine.slot_action(1, "erase").n_tokens))
        thread.start()
        gate.release(3)  # steps that read the prompt
        while not isinstance(stream.get(), TokenEvent):
            pass
        assert thread.is_alive() and not results
        gate.release(100)
        thread.join(10)
        assert results == [23]


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with fake_engine() as engine:
        with pytest.raises(SlotActionError, match="holds nothing"):
            engine.slot_action(0, "save", str(tmp_path / "x"))
        with pytest.raises(SlotActionError, match="cannot be read"):
            engine.slot_action(0, "restore", str(tmp_path / "x"))
        ask(engine, "a")
        with pytest.raises(SlotActionError, match="cannot be written"):
            engine.slot_action(1, "save", str(tmp_path / "no" / "such" / "folder"))
        engine.slot_action(1, "save", str(tmp_path / "x"))
    with fake_engine(n_ctx_slot=22) as engine, pytest.raises(SlotActionError, match="state_bytes"):
        engine.slot_action(0, "restore", str(tmp_path / "x"))
    with pytest.raises(SlotActionError, match="stopped"):
        engine.slot_action(0, "erase")


@pytest.mark.parametrize("field", ["model", "layout", "page_tokens"])
def test_a_file_of_another_model_is_refused(tmp_path: Path, field: str) -> None:
    path = tmp_path / "x"
    write_slot_file(path, OWNER, SNAPSHOT)
    other = replace(OWNER, **{field: 2 if field == "page_tokens" else "other"})
    with pytest.raises(SlotFileError, match=field):
        read_slot_file(path, other)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x"
    size = write_slot_file(path, OWNER, SNAPSHOT)
    read, n_bytes = read_slot_file(path, OWNER)
    assert n_bytes == size and list(tmp_path.iterdir()) == [path]
    for name in ("tokens", "pages", "state"):
        np.testing.assert_array_equal(getattr(read, name), getattr(SNAPSHOT, name))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damaged_file_is_accepted(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("damaged") / "x"
    write_slot_file(path, OWNER, SNAPSHOT)
    good = path.read_bytes()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(good) - 1))
        damaged = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    else:
        damaged = good[: data.draw(st.integers(0, len(good) - 1))] + data.draw(st.sampled_from([b"", b"\0" * 999]))
    if damaged == good:
        return
    path.write_bytes(damaged)
    with pytest.raises(SlotFileError):
        read_slot_file(path, OWNER)


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e999", "-1", '"x"', "[]"])
def test_no_number_in_a_header_is_believed(tmp_path: Path, number: str) -> None:
    path = tmp_path / "x"
    write_slot_file(path, OWNER, SNAPSHOT)
    good, count = path.read_bytes(), f'"n_tokens": {len(SNAPSHOT.tokens)}'.encode()
    forged = f'"n_tokens": {number}'.encode()
    size = int.from_bytes(good[N_HEADER_AT : N_HEADER_AT + 4], "little") + len(forged) - len(count)
    data = good[:N_HEADER_AT] + size.to_bytes(4, "little") + good[N_HEADER_AT + 4 :]
    path.write_bytes(data.replace(count, forged, 1))
    with pytest.raises(SlotFileError, match=r"its header|no tokens|not the size"):
        read_slot_file(path, OWNER)


def test_real_states_go_on_with_the_same_bits(tmp_path: Path) -> None:
    path = str(tmp_path / "slot.bin")
    sizes = EngineSettings(str(default_model_path()), n_slots=2, n_ctx_slot=512, n_ctx_total=1024, n_threads=2)
    sampling = SamplingParams(seed=3)
    prompt = tuple(range(200, 350))

    def answer(engine: LocalEngine, name: str, tokens: tuple[int, ...]) -> tuple[list[object], int]:
        asked = GenerationRequest(name, tokens, sampling, max_tokens=20, n_probs=4, id_slot=0)
        events = list(engine.submit(asked))
        return [(e.token, e.probs) for e in events if isinstance(e, TokenEvent)], events[-1].timings.prompt_n

    with LocalEngine.load(sizes) as engine:
        first, _ = answer(engine, "a", prompt)
        longer = (*prompt, *(token for token, _ in first), 17, 18)
        engine.slot_action(0, "save", path)
        engine.slot_action(0, "erase")
        fresh, n_fresh = answer(engine, "b", longer)
    with LocalEngine.load(sizes) as engine:
        engine.slot_action(0, "restore", path)
        restored, n_restored = answer(engine, "c", longer)
    assert (n_fresh, n_restored) == (len(longer), 3)
    assert restored == fresh
