"""Streams of /completion and /v1/completions: order of events, held text, pings, failures."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.scripted_engine import Script, ScriptedEngine
from tests.server.scripted import eos, events, ids, make_client, post, post_error, said, stream, tiny_tokenizer

BATCHES = [1, 2, 5, 16]
CHUNK_KEYS = ["index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"]


@pytest.mark.parametrize("batch", BATCHES)
def test_native_chunks(batch: int) -> None:
    tokens = ids("Hello you there")
    client = make_client(ScriptedEngine(said("Hello you there", batch=batch)))
    got = stream(client, "/completion", {"prompt": "Once upon"})
    *chunks, final = got
    assert [chunk["tokens"] for chunk in chunks] == [[token] for token in [*tokens, eos()]]
    assert all(list(chunk) == CHUNK_KEYS for chunk in chunks)
    assert "".join(chunk["content"] for chunk in chunks) == "Hello you there"
    assert [chunk["tokens_predicted"] for chunk in chunks] == list(range(1, len(tokens) + 2))
    assert {(chunk["stop"], chunk["id_slot"], chunk["index"]) for chunk in chunks} == {(False, -1, 0)}
    assert chunks[-1]["content"] == ""  # the end token has its own chunk
    assert (final["content"], final["tokens"], final["stop"], final["stop_type"]) == ("", [], True, "eos")
    assert "completion_probabilities" not in final
    assert final["generation_settings"]["stream"] is True


def test_headers_of_a_stream() -> None:
    response = make_client(ScriptedEngine(said("a"))).post("/completion", json={"prompt": "a", "stream": True})
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in response.headers


def test_characters_are_whole_and_have_the_last_id() -> None:
    engine = ScriptedEngine(said("你🙂"))
    chunks = stream(make_client(engine), "/completion", {"prompt": "a"})[:-2]
    text = "".join(chunk["content"] for chunk in chunks)
    assert text == "你🙂" and "�" not in text
    assert chunks[-1]["tokens_predicted"] == len(ids("你🙂"))
    assert len(chunks) < len(ids("你🙂"))
    assert chunks[-1]["tokens"] == [ids("你🙂")[-1]]


@pytest.mark.parametrize("n_predict", range(1, 13))
@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_an_incomplete_tail_is_dropped(path: str, n_predict: int) -> None:
    engine = ScriptedEngine(said("你好🙂你"))
    got = stream(make_client(engine), path, {"prompt": "a", "n_predict": n_predict})
    chunks = [e for e in got if e != "[DONE]"]
    text = "".join(e["content"] if path == "/completion" else e["choices"][0]["text"] for e in chunks)
    assert "你好🙂你".startswith(text)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("stop", ["three", "wo th", " ", "e f"])
def test_stop_strings_never_leak(batch: int, stop: str) -> None:
    text = "one two three four five"
    engine = ScriptedEngine(Script(ids(text), batch=batch, repeat=True))
    *chunks, final = stream(make_client(engine), "/completion", {"prompt": "a", "stop": [stop]})
    assert "".join(chunk["content"] for chunk in chunks) == text[: text.index(stop)]
    assert (final["stop_type"], final["stopping_word"]) == ("word", stop)
    assert list(chunks[-1]) == [*CHUNK_KEYS, "timings"]  # the token that stopped by word
    assert final["timings"]["predicted_n"] == final["tokens_predicted"] == chunks[-1]["tokens_predicted"]
    assert engine.cancels[0] == (engine.requests[0].id, final["tokens_predicted"])
    assert engine.wait_idle()


def test_held_text_comes_out_at_the_limit() -> None:
    tokens = ids("one tw")
    engine = ScriptedEngine(Script(tokens, repeat=True))
    body = {"prompt": "a", "stop": ["two"], "n_predict": len(tokens)}
    *chunks, final = stream(make_client(engine), "/completion", body)
    assert "".join(chunk["content"] for chunk in chunks) == "one tw"
    assert final["stop_type"] == "limit"


def test_stream_and_whole_answer_agree() -> None:
    text = "some text\nwith 你好 and STOPgap and more"
    for body in ({}, {"stop": ["STOP"]}, {"n_predict": 7}, {"n_indent": 2}):
        engine = ScriptedEngine(said(text, batch=5))
        whole = post(make_client(engine), "/completion", {"prompt": "a", **body})
        engine.say(said(text, batch=5))
        *chunks, final = stream(make_client(engine), "/completion", {"prompt": "a", **body})
        assert "".join(chunk["content"] for chunk in chunks) == whole["content"].removesuffix("�")
        for key in ("tokens_predicted", "stop_type", "stopping_word", "has_new_line", "truncated"):
            assert final[key] == whole[key], (body, key)


def test_optional_keys_in_order() -> None:
    engine = ScriptedEngine(said("Hello you", progress=[0, 2]))
    body = {"prompt": "a b c d", "timings_per_token": True, "return_progress": True, "n_probs": 2}
    first, second, chunk, *_ = stream(make_client(engine), "/completion", body)
    n_prompt = len(ids("a b c d"))
    for event, processed in ((first, 0), (second, 2)):
        assert list(event) == [*CHUNK_KEYS, "timings", "prompt_progress"]
        assert event["timings"]["prompt_n"] == processed and event["timings"]["predicted_n"] == 0
        assert (event["content"], event["tokens"], event["tokens_predicted"]) == ("", [0], 0)
        progress = {"total": n_prompt, "cache": 0, "processed": processed, "time_ms": processed}
        assert event["prompt_progress"] == progress
        assert isinstance(event["prompt_progress"]["time_ms"], int)
    assert list(chunk) == [*CHUNK_KEYS, "timings", "completion_probabilities"]
    assert chunk["completion_probabilities"][0]["token"] == chunk["content"]


@pytest.mark.parametrize("batch", BATCHES)
def test_several_prompts_have_one_final_each(batch: int) -> None:
    engine = ScriptedEngine(said("Hello you", batch=batch))
    got = stream(make_client(engine), "/completion", {"prompt": ["a", "b"], "n": 2})
    for index in range(4):
        mine = [event for event in got if event["index"] == index]
        assert [event["stop"] for event in mine] == [False] * (len(mine) - 1) + [True]
        assert "".join(event["content"] for event in mine) == "Hello you"


def test_openai_stream() -> None:
    got = stream(make_client(ScriptedEngine(said("Hello you"))), "/v1/completions", {"prompt": "Once"})
    *chunks, final, done = got
    assert done == "[DONE]"
    for chunk in chunks:
        assert list(chunk) == ["choices", "created", "model", "system_fingerprint", "object", "id"]
        assert chunk["choices"][0]["finish_reason"] is None and chunk["choices"][0]["logprobs"] is None
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello you"
    assert list(final) == ["choices", "created", "model", "system_fingerprint", "object", "usage", "id", "timings"]
    assert final["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert len({event["id"] for event in [*chunks, final]}) == 1


def test_empty_prompt_streams_its_final_object() -> None:
    got = stream(make_client(ScriptedEngine(said("x"))), "/completion", {"prompt": ""})
    assert len(got) == 1 and got[0]["stop_type"] == "none"


def test_an_early_failure_is_an_http_error() -> None:
    engine = ScriptedEngine(Script([5], fail_after=0, fail_kind="unavailable", fail_message="engine restarted"))
    status, error = post_error(make_client(engine), "/completion", {"prompt": "a", "stream": True})
    assert (status, error["message"], error["type"]) == (503, "engine restarted", "unavailable_error")


@pytest.mark.parametrize("path", ["/completion", "/v1/completions"])
def test_a_later_failure_is_an_event_without_done(path: str) -> None:
    engine = ScriptedEngine(Script(ids("one two three"), fail_after=2, fail_message="broken"))
    got = stream(make_client(engine), path, {"prompt": "a"})
    assert got[-1] == {"error": {"code": 500, "message": "broken", "type": "server_error"}}
    assert len(got) == 3 and "[DONE]" not in got


def test_pings_fill_silence_and_nothing_else() -> None:
    engine = ScriptedEngine(said("Hello you", prefill_delay=2.3))
    got = stream(make_client(engine), "/v1/completions", {"prompt": "a", "sse_ping_interval": 1})
    assert got[:2] == [":", ":"]
    assert ":" not in got[2:] and got[-1] == "[DONE]"


@pytest.mark.parametrize("interval", [-1, 0])
def test_pings_can_be_off(interval: int) -> None:
    engine = ScriptedEngine(said("Hello", prefill_delay=1.2))
    assert ":" not in stream(make_client(engine), "/completion", {"prompt": "a", "sse_ping_interval": interval})


def test_queued_streams_ping_while_they_wait() -> None:
    engine = ScriptedEngine(Script([5], repeat=True, delay=0.01), said("Hello"), n_slots=1)
    client = make_client(engine)
    first = client.post("/completion", data=json.dumps({"prompt": "a", "stream": True}))
    body: dict[str, Any] = {"prompt": "b", "stream": True, "sse_ping_interval": 1}
    second = client.post("/completion", data=json.dumps(body))
    frames = (frame for frame in second.response if frame)  # an empty first write sends the headers
    assert next(frames) == b":\n\n"
    first.close()  # frees the slot
    rest = events(b"".join(frames))  # type: ignore[arg-type]
    assert rest[-1]["stop_type"] == "eos"


def test_every_frame_is_valid_when_the_reader_is_slow() -> None:
    text = "".join(chr(0x4E00 + n % 500) + "🙂" for n in range(300))
    client = make_client(ScriptedEngine(said(text, batch=16)))
    response = client.post("/completion", data=json.dumps({"prompt": "a", "stream": True}))
    collected = []
    for number, frame in enumerate(response.response):
        collected.append(events(frame))  # type: ignore[arg-type]
        if number % 50 == 0:
            time.sleep(0.01)
    assert "".join(event["content"] for frame in collected for event in frame) == text


def test_text_of_one_token_can_hold_several_stop_beginnings() -> None:
    token = tiny_tokenizer().token_id("the")
    assert token is not None
    engine = ScriptedEngine(Script([token, token, eos()]))
    *chunks, final = stream(make_client(engine), "/completion", {"prompt": "a", "stop": ["eth", "heX"]})
    assert "".join(chunk["content"] for chunk in chunks) == "th" and final["stopping_word"] == "eth"
