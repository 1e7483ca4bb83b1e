"""Reports about streams: torn characters, slow readers, thoughts, usage and pings."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from pyjet.server import jsonio
from tests.field_reports.force import CHAT, HI, MESSAGES, RESPONSES, TOOLS, assembled, call_text, tokens_of
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.raw_http import RawClient
from tests.server.scripted import (
    events,
    make_client,
    make_service,
    post,
    said,
    stream,
    tiny_tokenizer,
    typed_stream,
)

USER = {"role": "user", "content": "Hi"}


# characters


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", CHAT, MESSAGES, RESPONSES])
def test_a_cut_inside_a_character_breaks_nothing(path: str) -> None:
    text = "你好🙂你好🙂"
    tokens = tokens_of("</think>\n\n" * (path in (CHAT, MESSAGES, RESPONSES)) + text)
    question: dict[str, Any] = {"prompt": "a"} if "completion" in path and path != CHAT else {"messages": HI}
    question = {"input": "Hi"} if path == RESPONSES else question
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    for n in range(1, len(tokens)):
        client = make_client(ScriptedEngine(Script(tokens)))
        whole = client.post(path, data=json.dumps({**question, limit: n}))
        assert whole.status_code == 200
        whole.get_data().decode("utf-8")
        assert whole.get_json() is not None
        streamed = client.post(path, data=json.dumps({**question, limit: n, "stream": True}))
        for line in streamed.get_data().decode("utf-8").split("\n"):
            if line.startswith("data: {"):
                json.loads(line[6:])
                assert "\ufffd" not in line or '"stop":true' in line, "only a whole text shows what is missing"


def test_a_reader_of_single_bytes_gets_whole_frames() -> None:
    value = "".join(chr(0x4E00 + n % 500) + "🙂" for n in range(1500))
    tokens = tokens_of("</think>" + call_text("write_file", path="p", content=value))
    with serving(make_service(ScriptedEngine(Script(tokens, batch=16), n_ctx_slot=1 << 16))) as port:
        body = json.dumps({"messages": HI, "tools": TOOLS, "stream": True}).encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)  # before the window is agreed on
            connection.settimeout(20)
            connection.connect(("127.0.0.1", port))
            connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
            data = b"".join(connection.recv(1) for _ in range(400))
            time.sleep(0.5)
            assert RawClient(port).request("GET", "/health").status == 200, "nobody else waits for a slow reader"
            while not data.endswith(b"\r\n0\r\n\r\n"):
                piece = connection.recv(1500)
                assert piece, "the stream was cut"
                data += piece
    payload = dechunked(data.partition(b"\r\n\r\n")[2])
    message = assembled(events(payload))
    assert message.arguments == [{"path": "p", "content": value}] and message.finish == "tool_calls"


def dechunked(data: bytes) -> bytes:
    """Body of a chunked answer; every chunk must hold whole frames of valid UTF-8."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        chunk = data[: int(size, 16)]
        chunk.decode("utf-8")
        assert not chunk or chunk.endswith(b"\n\n")
        body += chunk
        data = data[int(size, 16) + 2 :]
    return body


# thoughts


def test_thoughts_that_use_up_the_limit_are_no_answer() -> None:
    text = "word " * 200
    client = make_client(ScriptedEngine(said(text)))
    answer = post(client, CHAT, {"messages": HI, "max_tokens": 64})
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == ""
    assert choice["message"]["reasoning_content"].startswith("word word")
    assert answer["usage"]["completion_tokens"] == 64
    message = assembled(stream(client, CHAT, {"messages": HI, "max_tokens": 64}))
    assert (message.finish, message.content, message.reasoning) == (
        "length", "", choice["message"]["reasoning_content"])  # fmt: skip


@pytest.mark.parametrize("fields", [
    {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"},
    {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True, "unknown": [1]}},
])  # fmt: skip
def test_thinking_can_be_switched_off(fields: dict[str, Any]) -> None:
    engine = ScriptedEngine(said("Hello"))
    client = make_client(engine)
    prompt = post(client, "/apply-template", {"messages": HI, **fields})["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    message = post(client, CHAT, {"messages": HI, **fields})["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Hello"}
    assert tiny_tokenizer().decode(engine.requests[0].prompt) == prompt
    assert not assembled(stream(client, CHAT, {"messages": HI, **fields})).reasoning


def test_three_spellings_of_earlier_thoughts() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    tail = [{"role": "tool", "tool_call_id": "c", "content": "x"}]
    client = make_client(ScriptedEngine(said("x")))
    spellings = [
        {"content": "A", "reasoning_content": "deep thought"},
        {"content": "A", "reasoning": "deep thought"},
        {"content": "<think>\ndeep thought\n</think>\n\nA"},
        {"content": "<think>deep thought</think>A"},
    ]
    prompts = set()
    for spelling in spellings:
        history = [USER, {"role": "assistant", "tool_calls": [call], **spelling}, *tail]
        prompts.add(post(client, "/apply-template", {"messages": history})["prompt"])
    (prompt,) = prompts
    assert "<think>\ndeep thought\n</think>\n\nA" in prompt


# usage


def test_numbers_of_a_stream_with_and_without_asking() -> None:
    engine = ScriptedEngine(said("</think>\n\nHello", cached=3))
    client = make_client(engine)
    *chunks, _ = stream(client, CHAT, {"messages": HI})
    assert all("usage" not in chunk for chunk in chunks), "as at llama-server, usage is sent to who asks for it"
    timings = chunks[-1]["timings"]
    assert timings["cache_n"] == 3 and timings["prompt_n"] == len(engine.requests[0].prompt) - 3
    *chunks, _ = stream(client, CHAT, {"messages": HI, "stream_options": {"include_usage": True}})
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert chunks[-1]["usage"]["prompt_tokens"] == len(engine.requests[0].prompt)


def test_cached_tokens_are_visible_on_every_api() -> None:
    engine = ScriptedEngine(said("</think>\n\nHello", cached=5))
    client = make_client(engine)
    chat = post(client, CHAT, {"messages": HI})["usage"]
    n_prompt = len(engine.requests[0].prompt)
    assert (chat["prompt_tokens"], chat["prompt_tokens_details"]) == (n_prompt, {"cached_tokens": 5})
    message = post(client, MESSAGES, {"messages": HI, "max_tokens": 50})["usage"]
    assert (message["cache_read_input_tokens"], message["input_tokens"]) == (5, n_prompt - 5)
    start = typed_stream(client, MESSAGES, {"messages": HI, "max_tokens": 50})[0]["message"]["usage"]
    assert (start["cache_read_input_tokens"], start["input_tokens"]) == (5, n_prompt - 5)
    response = post(client, RESPONSES, {"input": "Hi"})["usage"]
    assert (response["input_tokens"], response["input_tokens_details"]) == (n_prompt, {"cached_tokens": 5})


# pings


def test_pings_by_a_naive_reader() -> None:
    """A client that reads line by line sees comments only before and between events, none behind the end."""
    engine = ScriptedEngine(said("</think>\n\nHello", prefill_delay=2.3))
    with serving(make_service(engine, sse_ping_interval=1)) as port:
        connection = open_request(port, CHAT, {"messages": HI, "stream": True})
        lines = dechunked(read_until(connection, b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")[2]).split(b"\n")
        connection.close()
    kinds = [line[:6] if line.startswith(b"data: ") else line for line in lines]
    assert set(kinds) == {b":", b"data: ", b""}
    assert kinds.index(b":") < kinds.index(b"data: ") and kinds.count(b":") >= 2
    assert lines[-3:] == [b"data: [DONE]", b"", b""]


def test_no_pings_in_answers_that_are_not_streams() -> None:
    engine = ScriptedEngine(said("</think>\n\nHello", prefill_delay=1.3))
    with serving(make_service(engine, sse_ping_interval=1)) as port, RawClient(port) as client:
        answer = client.request("POST", CHAT, jsonio.dump({"messages": HI}))
        assert answer.body.startswith(b"{") and answer.json["choices"][0]["message"]["content"] == "Hello"
