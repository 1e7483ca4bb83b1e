"""Saving, restoring and erasing slots over HTTP: shapes, checks in llama-server's order, file names."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from flask.testing import FlaskClient

from pyjet.engine.client import SlotActionError
from pyjet.server.file_names import is_plain_file_name
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import ids, make_client, post, post_error, said

FILE = {"filename": "s.bin"}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(said("x"))


@pytest.fixture
def client(engine: ScriptedEngine) -> FlaskClient:
    return make_client(engine, slot_save_path="/slots/")


def test_answers(client: FlaskClient, engine: ScriptedEngine) -> None:
    saved = client.post("/slots/1?action=save", data=json.dumps(FILE))
    assert saved.get_data(as_text=True) == (
        '{"id_slot":1,"filename":"s.bin","n_saved":9,"n_written":59944,"timings":{"save_ms":0.25}}'
    )
    restored = client.post("/slots/2?action=restore", data=json.dumps(FILE))
    assert restored.get_data(as_text=True) == (
        '{"id_slot":2,"filename":"s.bin","n_restored":9,"n_read":59944,"timings":{"restore_ms":0.25}}'
    )
    assert client.post("/slots/3?action=erase").get_data(as_text=True) == '{"id_slot":3,"n_erased":9}'
    assert engine.slot_actions == [(1, "save", "/slots/s.bin"), (2, "restore", "/slots/s.bin"), (3, "erase", None)]


@pytest.mark.parametrize(("text", "given", "used"), [("7", 7, 3), ("-1", -1, 3), ("2x", 2, 2)])
def test_any_number_is_a_slot(client: FlaskClient, engine: ScriptedEngine, text: str, given: int, used: int) -> None:
    assert post(client, f"/slots/{text}?action=erase", {})["id_slot"] == given
    assert engine.slot_actions[0][0] == used


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/slots/x?action=save", FILE, "Invalid slot ID"),
        ("/slots/99999999999?action=nothing", FILE, "Invalid slot ID"),
        ("/slots/0?action=nothing", FILE, "Invalid action"),
        ("/slots/0", FILE, "Invalid action"),
        ("/slots/0?action=save", {"filename": "../s"}, "Invalid filename"),
        ("/slots/0?action=restore", {"filename": ""}, "Invalid filename"),
        ("/slots/0?action=save", {"name": "s"}, "[json.exception.out_of_range.403] key 'filename' not found"),
        ("/slots/0?action=restore", [], "[json.exception.type_error.304] cannot use at() with array"),
        ("/slots/0?action=save", {"filename": 5}, "[json.exception.type_error.302] type must be string, but is number"),
    ],
)
def test_wrong_requests(client: FlaskClient, engine: ScriptedEngine, path: str, body: Any, message: str) -> None:
    expected = {"code": 400, "message": message, "type": "invalid_request_error"}
    assert post_error(client, path, body) == (400, expected)
    assert engine.slot_actions == []


def test_an_empty_body_is_no_json(client: FlaskClient) -> None:
    status, error = post_error(client, "/slots/0?action=save", b"")
    assert status == 400 and error["message"].startswith("[json.exception.parse_error.101] parse error at line 1")


@pytest.mark.parametrize(
    ("action", "status", "message"),
    [
        ("restore", 400, "Unable to restore slot: No available space in KV cache or invalid slot save file"),
        ("save", 500, "Unable to save slot: no space left on the device"),
        ("erase", 500, "Unable to erase slot: no space left on the device"),
    ],
)
def test_failures(client: FlaskClient, engine: ScriptedEngine, action: str, status: int, message: str) -> None:
    engine.slot_answer = SlotActionError("no space left on the device")
    found, error = post_error(client, f"/slots/0?action={action}", FILE)
    assert (found, error["message"]) == (status, message)


def test_an_engine_that_stops_meanwhile(client: FlaskClient, engine: ScriptedEngine) -> None:
    engine.slot_answer = SlotActionError("the engine was stopped")
    engine.close()
    status, error = post_error(client, "/slots/0?action=restore", FILE)
    assert (status, error["message"], error["type"]) == (503, "the engine was stopped", "unavailable_error")


def test_a_busy_slot_is_waited_for() -> None:
    engine = ScriptedEngine(Script(ids("a b"), pause_after=1, repeat=True), n_slots=1)
    client = make_client(engine, slot_save_path="/slots/")
    work = threading.Thread(target=post, args=(client, "/completion", {"prompt": "a", "n_predict": 2}))
    work.start()
    while not any(slot.n_decoded for slot in engine.slots()):
        time.sleep(0.002)
    action = threading.Thread(target=post, args=(client, "/slots/0?action=erase", {}))
    action.start()
    action.join(0.1)
    assert action.is_alive() and engine.slot_actions == []
    engine.resume.set()
    for thread in (work, action):
        thread.join(5)
    assert engine.slot_actions == [(0, "erase", None)]


@pytest.mark.parametrize("name", ["s.bin", "a b", ".hidden", "ü-漢字.bin", "x" * 255, "a.b.c"])
def test_good_names(name: str) -> None:
    assert is_plain_file_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", "a.", "a ", " a", "a/b", "/etc/passwd", "a\\b", "c:d", "a*", "a?", 'a"', "<a>", "a|b",
     "a\n", "a\x00", "a\x7f", "a\x85", "a\uff0e", "a\u2215b", "\ufeffa", "a\ufffd", "a\ud800", "x" * 256, "ü" * 128],
)  # fmt: skip
def test_bad_names(name: str) -> None:
    assert not is_plain_file_name(name)
