"""Streams with X-Conversation-Id: they outlive their client and can be read again, looked up and stopped."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
import requests
from flask.testing import FlaskClient

from pyjet.server.app import create_app
from pyjet.server.stream_record import PlaceLost, StreamRecord
from pyjet.server.stream_records import KEEP_SECONDS, MAX_FINISHED, StreamRecords
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.scripted import events, ids, make_client, make_service, post, post_error, said

PATH = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
ANSWER = "</think>\n\nHello you there"


def start(client: FlaskClient, conversation: str, body: dict[str, Any] | None = None, path: str = PATH) -> bytes:
    headers = {"X-Conversation-Id": conversation}
    response = client.post(path, data=json.dumps(body or BODY), headers=headers)
    assert response.status_code == 200 and response.headers["Content-Type"] == "text/event-stream"
    return response.get_data()


def lookup(client: FlaskClient, *conversations: Any) -> Any:
    return post(client, "/v1/streams/lookup", {"conversation_ids": list(conversations)})


def test_a_finished_stream_can_be_read_again() -> None:
    client = make_client(ScriptedEngine(said(ANSWER)))
    data = start(client, "c1")
    assert events(data)[-1] == "[DONE]"
    for position in (0, 1, 57, len(data) - 1, len(data), len(data) + 5):
        answer = client.get(f"/v1/stream?conv_id=c1&from={position}")
        assert answer.headers["Content-Type"] == "text/event-stream" and answer.get_data() == data[position:]
    assert client.get("/v1/stream?conv_id=c1").get_data() == data
    (entry,) = lookup(client, "c1", "c2", 5, "")
    assert list(entry) == ["conversation_id", "is_done", "total_bytes", "started_at", "completed_at"]
    assert (entry["conversation_id"], entry["is_done"], entry["total_bytes"]) == ("c1", True, len(data))
    assert entry["started_at"] <= entry["completed_at"] <= time.time()


def test_nothing_is_kept_without_the_header_or_of_failures() -> None:
    client = make_client(ScriptedEngine(said(ANSWER)))
    client.post(PATH, data=json.dumps(BODY)).get_data()
    failed = client.post(PATH, data=json.dumps({**BODY, "n": 0}), headers={"X-Conversation-Id": "bad"})
    assert failed.status_code == 400
    whole = client.post(PATH, data=json.dumps({**BODY, "stream": False}), headers={"X-Conversation-Id": "whole"})
    assert whole.get_json()["object"] == "chat.completion"
    assert lookup(client, "bad", "whole") == []


@pytest.mark.parametrize("path", ["/completion", "/v1/messages", "/v1/responses"])
def test_every_api_can_be_recorded(path: str) -> None:
    client = make_client(ScriptedEngine(said(ANSWER)))
    data = start(client, "a/b::c", {**BODY, "prompt": "Hi", "input": "Hi"}, path)
    assert client.get("/v1/stream?conv_id=a%2Fb::c").get_data() == data
    assert [entry["conversation_id"] for entry in lookup(client, "a/b", "a")] == ["a/b::c"]


def leave_early(port: int, engine: ScriptedEngine) -> None:
    """Start a stream that pauses, read a little of it, close the connection, and see that the work goes on."""
    connection = open_request(port, PATH, BODY, {"X-Conversation-Id": "c"})
    assert b"data: " in read_until(connection, b"data: ")
    connection.close()
    time.sleep(0.5)
    assert engine.cancels == [] and any(slot.is_processing for slot in engine.slots())


def test_a_stream_goes_on_without_its_client_and_can_be_followed() -> None:
    engine = ScriptedEngine(said(ANSWER, pause_after=2))
    service = make_service(engine)
    with serving(service) as port:
        leave_early(port, engine)
        entry = create_app(service, service.options).test_client()
        assert [(found["is_done"], found["completed_at"]) for found in lookup(entry, "c")] == [(False, 0)]
        with requests.get(f"http://127.0.0.1:{port}/v1/stream?conv_id=c", stream=True, timeout=20) as replay:
            head = replay.raw.read(5)
            engine.resume.set()
            got = events(head + replay.raw.read())
    assert got[-1] == "[DONE]"
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in got[:-1]) == "Hello you there"


def test_a_stream_without_its_client_can_be_stopped() -> None:
    engine = ScriptedEngine(said(ANSWER, pause_after=2))
    with serving(make_service(engine)) as port:
        leave_early(port, engine)
        url = f"http://127.0.0.1:{port}/v1/stream?conv_id=c"
        stopped = requests.delete(url, timeout=20)
        assert (stopped.status_code, stopped.content) == (204, b"")
        assert engine.wait_idle() and engine.cancels
        assert requests.get(url, timeout=20).status_code == 404


def test_a_new_stream_of_a_conversation_ends_the_one_before() -> None:
    engine = ScriptedEngine(Script(ids("word "), delay=0.01, repeat=True))
    service = make_service(engine)
    client = create_app(service, service.options).test_client()
    response = client.post(PATH, data=json.dumps(BODY), headers={"X-Conversation-Id": "c"})
    engine.say(said(ANSWER))
    data = start(client, "c")
    assert engine.wait_idle()
    assert client.get("/v1/stream?conv_id=c").get_data() == data
    response.close()


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("", 400, "Missing conversation id in path"),
        ("?conv_id=", 400, "Missing conversation id in path"),
        ("?conv_id=none", 404, "File Not Found"),
        ("?conv_id=c&from=x", 400, "Invalid 'from' offset"),
        ("?conv_id=c&from=-1", 400, "Invalid 'from' offset"),
    ],
)
def test_errors(query: str, status: int, message: str) -> None:
    client = make_client(ScriptedEngine(said(ANSWER)))
    start(client, "c")
    answer = client.get("/v1/stream" + query)
    assert (answer.status_code, answer.get_json()["error"]["message"]) == (status, message)
    if not query.startswith("?conv_id=c") and status == 400:
        assert client.delete("/v1/stream" + query).status_code == 400
    assert client.delete("/v1/stream?conv_id=none").status_code == 204
    assert post_error(client, "/v1/streams/lookup", b"{bad")[0] == 400
    assert lookup(client) == post(client, "/v1/streams/lookup", {}) == []


# the record


def never() -> bool:
    return False


def test_only_the_last_bytes_are_kept() -> None:
    record = StreamRecord("c", max_bytes=10)
    for piece in (b"0123", b"4567", b"89ab"):
        record.append(piece)
    record.finish()
    assert record.n_bytes == 12 and not record.has(1) and record.has(2)
    assert b"".join(record.read(2, never)) == b"23456789ab"
    with pytest.raises(PlaceLost):
        next(record.read(1, never))


def test_the_stream_waits_for_its_first_client() -> None:
    record = StreamRecord("c", max_bytes=100)
    reader = record.read_first(never)
    record.append(b"x" * 60)
    assert next(reader) == b"x" * 60
    writer = threading.Thread(target=lambda: [record.append(b"y" * 30) for _ in range(20)], daemon=True)
    writer.start()
    time.sleep(0.3)
    assert record.n_bytes <= 60 + 60 + 30, "it does not run ahead"
    got = sum(len(next(reader)) for _ in range(2))
    reader.close()  # the client leaves: nothing waits any more
    writer.join(5)
    assert not writer.is_alive() and record.n_bytes == 660 and got > 0


def test_readers_end_when_they_leave_or_when_it_is_stopped() -> None:
    record = StreamRecord("c")
    record.append(b"abc")
    assert list(record.read(0, lambda: True)) == []
    record.cancel()
    assert list(record.read(0, never)) == [] and record.is_done


def test_old_records_are_forgotten() -> None:
    now = [time.time()]
    records = StreamRecords(lambda: now[0])
    running, finished = records.start("running"), records.start("finished")
    finished.finish()
    now[0] += KEEP_SECONDS - 10
    assert records.find("finished") is finished
    now[0] += 20
    assert records.find("finished") is None and records.find("running") is running
    now[0] = time.time()
    for number in range(MAX_FINISHED + 5):
        records.start(f"c{number}").finish()
    assert records.find("running") is running
    kept = [number for number in range(MAX_FINISHED + 5) if records.find(f"c{number}") is not None]
    assert len(kept) == MAX_FINISHED
