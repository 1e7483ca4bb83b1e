"""Hundreds of malformed requests: always a clear answer where one is due, never a crash or a hang."""

from __future__ import annotations

import itertools
import json
import random
import socket
from collections.abc import Iterator

import pytest

from pyjet.engine.request import GenerationRequest, TokenProbs
from tests.scripted_engine import ScriptedEngine
from tests.server.live import serving
from tests.server.raw_http import Answer, RawClient
from tests.server.scripted import make_service, said

# requests that are not HTTP

GARBAGE_LINES = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client
    b"\x00\x00\x00\x00\r\n\r\n",
    b"\xff\xfe\xfd\r\n\r\n",
    b"hello\r\n\r\n",
    b"hello\n\n",
    b"GET\r\n\r\n",
    b"GET \r\n\r\n",
    b"GET /health\r\n\r\n",
    b"GET  /health HTTP/1.1\r\n\r\n",
    b"GET /health  HTTP/1.1\r\n\r\n",
    b"GET /he alth HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1 x\r\n\r\n",
    b"GET /health HTTP/2.0\r\n\r\n",
    b"GET /health HTTP/0.9\r\n\r\n",
    b"GET /health HTTP/1\r\n\r\n",
    b"GET /health http/1.1\r\n\r\n",
    b"GET /health HTTPS/1.1\r\n\r\n",
    b"get /health HTTP/1.1\r\n\r\n",
    b"Get /health HTTP/1.1\r\n\r\n",
    b"FOO /health HTTP/1.1\r\n\r\n",
    b"GETT /health HTTP/1.1\r\n\r\n",
    b"PROPFIND / HTTP/1.1\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b" GET /health HTTP/1.1\r\n\r\n",
    b"\tGET /health HTTP/1.1\r\n\r\n",
    b"GET\t/health\tHTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\n\r\n",
    b"{\"prompt\":\"x\"}\r\n\r\n",
    b"<html>\r\n\r\n",
    b"POST\r\n\r\n{}",
    b"A" * 100,
    b"A" * 100_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /" + b"a" * 40_000,
    b"GET" + b" " * 40_000,
]

# good request lines with bad headers

_LINE = b"POST /tokenize HTTP/1.1\r\n"
BAD_HEADERS = [
    b"no colon\r\n",
    b": empty name\r\n",
    b"A B: c\r\n",
    b"A : b\r\n",
    b" folded: first\r\n",
    b"A: b\nC: d\r\n",
    b"A: b\rC: d\r\n",
    b"A: \x00\r\n",
    b"A\x00: b\r\n",
    b"\xc3\xa9: b\r\n",
    b"A: \x01\x02\r\n",
    b"Content-Length: abc\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: +1\r\n",
    b"Content-Length: 1.5\r\n",
    b"Content-Length: 0x10\r\n",
    b"Content-Length: 1, 2\r\n",
    b"Content-Length: 1\r\nContent-Length: 2\r\n",
    b"Content-Length:\r\n",
    b"Content-Length: 99999999999999999999999\r\n",
    b"Content-Length: 999999999999\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Transfer-Encoding: chunked, gzip\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"X: " + b"y" * 200_000 + b"\r\n",
    b"".join(b"X-%d: y\r\n" % index for index in range(20_000)),
]

# bad chunked bodies

_CHUNKED = b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
BAD_CHUNKS = [
    b"zz\r\nab\r\n0\r\n\r\n",
    b"-1\r\n\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n",
    b"5 \r\nhello\r\n0\r\n\r\n",
    b"5;\x00\r\nhello\r\n0\r\n\r\n",
    b"2\r\nabc\r\n0\r\n\r\n",
    b"2\r\nab0\r\n\r\n",
    b"2\r\nabXX0\r\n\r\n",
    b"fffffffffffffffffffffff\r\nx\r\n",
    b"A" * 10_000,
    b"1" * 10_000 + b"\r\n",
    b"1;" + b"x" * 10_000,
    b"\xff\r\n",
    b" \r\n",
    b"g\r\n",
    b"0\r\n" + b"T: x\r\n" * 20_000,
]

# bodies that are not JSON, or not the JSON that is wanted

NOT_JSON = [
    b"",
    b" ",
    b"\n\n",
    b"{",
    b"{bad",
    b"}",
    b"[",
    b"]",
    b'{"a"',
    b'{"a":',
    b'{"a":1',
    b'{"a":1,}',
    b'{"a":1,,}',
    b'{,"a":1}',
    b"{'a':1}",
    b"{a:1}",
    b'{"a" 1}',
    b'{"a":1}{}',
    b'{"a":1} x',
    b"[1,]",
    b"[1 2]",
    b"nul",
    b"True",
    b"undefined",
    b"NaN",
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'{"a":1e999}',
    b'{"a":-1e999}',
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":.5}',
    b'{"a":1.}',
    b'{"a":0x1}',
    b'{"a":"\x01"}',
    b'{"a":"\n"}',
    b'{"a":"\\x"}',
    b'{"a":"\\u12"}',
    b'{"a":"\\ud800"}',
    b'{"a":"\\udc00"}',
    b'{"a":"\\ud800\\u0041"}',
    b'{"a":"\\ud800 \\udc00"}',
    b'{"\\udfff":1}',
    b'{"a":"\xff"}',
    b'{"a":"\xc3"}',
    b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\xf5\x80\x80\x80"}',
    b'{"a":"\xc0\x80"}',
    b"\xff\xfe{\x00}\x00",
    b"\x00",
    b"[" * 100_000,
    b"[" * 5000 + b"]" * 5000,
    b'{"a":' * 5000,
    b"// comment\n{}",
    b"prompt=hello&n_predict=3",
    b"<xml/>",
    b'"unterminated',
]
NOT_OBJECTS = [b"null", b"true", b"1", b'"text"', b"[]", b"[1,2]", b'["prompt"]']

POST_PATHS = [
    "/completion",
    "/v1/completions",
    "/v1/chat/completions",
    "/chat/completions/input_tokens",
    "/apply-template",
    "/tokenize",
    "/detokenize",
]

ODD_VALUES = [True, 3, -7, 1.5, 1e300, 10**30, "x", "", [], [[]], [None], {}, {"a": 1}, [1, "a", {}], [{"role": 1}]]
FIELDS = {
    "/completion": (
        "prompt n_predict stream temperature top_k top_p min_p seed stop n_probs logit_bias samplers id_slot n_cmpl "
        "cache_prompt repeat_last_n penalties grammar json_schema response_fields lora return_tokens t_max_predict_ms "
        "dry_sequence_breakers mirostat ignore_eos stream_options sse_ping_interval reasoning_format"
    ),
    "/v1/completions": "prompt max_tokens stream stop n logprobs echo logit_bias stream_options",
    "/v1/chat/completions": (
        "messages tools tool_choice stream max_tokens stop n logprobs top_logprobs response_format "
        "parallel_tool_calls chat_template_kwargs reasoning_format enable_thinking continue_final_message"
    ),
    "/apply-template": "messages tools tool_choice chat_template_kwargs add_generation_prompt",
    "/tokenize": "content add_special parse_special with_pieces",
    "/detokenize": "tokens",
}
BASE = {
    "/completion": {"prompt": "a", "n_predict": 2},
    "/v1/completions": {"prompt": "a", "max_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "/apply-template": {"messages": [{"role": "user", "content": "a"}]},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
}
ODD_MESSAGES = [
    [None],
    [1],
    ["user"],
    [[]],
    [{}],
    [{"role": None}],
    [{"role": "user"}],
    [{"role": "user", "content": 1}],
    [{"role": "user", "content": {}}],
    [{"role": "user", "content": [1]}],
    [{"role": "user", "content": [{}]}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "text", "text": 1}]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}],
    [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
    [{"role": "user", "content": [{"type": "magic"}]}],
    [{"role": "assistant", "tool_calls": 1}],
    [{"role": "assistant", "tool_calls": [1]}],
    [{"role": "assistant", "tool_calls": [{}]}],
    [{"role": "assistant", "tool_calls": [{"type": "function", "function": 1}]}],
    [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": 1, "arguments": []}}]}],
    [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{bad"}}]}],
    [{"role": "tool", "content": "x", "tool_call_id": 5}],
    [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}],
    [{"role": "wizard", "content": "a"}],
]
ODD_TOOLS = [
    [1],
    [{}],
    [{"type": "function"}],
    [{"type": "function", "function": 1}],
    [{"type": "function", "function": {}}],
    [{"type": "function", "function": {"name": 1}}],
    [{"type": "function", "function": {"name": "f", "parameters": 1}}],
    [{"type": "magic", "function": {"name": "f"}}],
]


def few_probs(token: int, _request: GenerationRequest) -> TokenProbs:
    """The scripted engine would list as many candidates as a hostile n_probs asks for."""
    return TokenProbs(-0.5, ((token, -0.5), (token + 1, -1.0)))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(make_service(ScriptedEngine(said("Hello", probs=few_probs)))) as port:
        yield port


@pytest.fixture(autouse=True)
def still_serves(port: int) -> Iterator[None]:
    """Whatever a test sent: the next requests work."""
    yield
    with RawClient(port) as client:
        assert client.request("GET", "/health").json == {"status": "ok"}
        answer = client.request("POST", "/completion", b'{"prompt":"a","n_predict":8}')
        assert answer.status == 200 and answer.json["content"] == "Hello"


def check_error(answer: Answer | None, *statuses: int) -> None:
    """An error in the shape that clients read, and not one of the kind `internal error`."""
    assert answer is not None, "no answer"
    assert answer.status in (statuses or range(400, 600))
    assert answer.headers["connection"] == "close"
    assert answer.headers["server"] == "llama.cpp"
    error = answer.json["error"]
    assert error["code"] == answer.status and error["type"].endswith("_error")
    assert error["message"] and not error["message"].startswith("internal error"), error


def check_fine(answer: Answer | None) -> None:
    """A proper answer of either kind."""
    assert answer is not None, "no answer"
    if answer.status == 200:
        assert answer.headers["content-type"] in ("application/json; charset=utf-8", "text/event-stream")
    else:
        check_error(answer)


@pytest.mark.parametrize("data", GARBAGE_LINES, ids=lambda data: repr(data[:40]))
def test_what_is_not_http(port: int, data: bytes) -> None:
    with RawClient(port) as client:
        client.send(data)
        answer = client.answer()
        if answer is None:
            return  # reset while we were still sending
        assert answer.status in (400, 414, 431)
        assert answer.headers["connection"] == "close" and answer.headers["server"] == "llama.cpp"
        if answer.status == 400:
            assert answer.headers.keys() == {"connection", "server"} and answer.body == b""
        assert client.is_closed()


@pytest.mark.parametrize("header", BAD_HEADERS, ids=lambda data: repr(data[:40]))
def test_bad_headers(port: int, header: bytes) -> None:
    with RawClient(port) as client:
        client.send(_LINE + header + b"\r\n")
        answer = client.answer()
        if answer is not None:  # None: reset while we were still sending
            check_error(answer, 400, 413, 431, 501)
            assert client.is_closed()


@pytest.mark.parametrize("chunks", BAD_CHUNKS, ids=lambda data: repr(data[:40]))
def test_bad_chunks(port: int, chunks: bytes) -> None:
    with RawClient(port) as client:
        client.send(_CHUNKED + chunks)
        client.socket.shutdown(socket.SHUT_WR)  # nothing more comes
        answer = client.answer()
        if answer is not None:
            check_error(answer, 400, 413)


@pytest.mark.parametrize("path", POST_PATHS)
def test_bodies_that_are_not_json(port: int, path: str) -> None:
    for body in NOT_JSON:
        with RawClient(port) as client:
            headers = [] if body else ["Content-Length: 0"]
            answer = client.request("POST", path, body, *headers)
            check_error(answer, 400)
            message = answer.json["error"]["message"]
            assert message.startswith(("[json.exception.parse_error.101] parse error at line ",
                                       "[json.exception.out_of_range.406] number overflow parsing ")), body[:40]


@pytest.mark.parametrize("path", POST_PATHS)
def test_bodies_that_are_not_objects(port: int, path: str) -> None:
    for body in NOT_OBJECTS:
        with RawClient(port) as client:
            check_error(client.request("POST", path, body), 400, 500)


def test_position_of_a_parse_error(port: int) -> None:
    cases = [(b"{bad", 1, 2), (b"", 1, 1), (b'{"a":1,\n "b":x}', 2, 6), (b'{"a":"\xff"}', 1, 7), (b'{"a":NaN}', 1, 6)]
    for body, line, column in cases:
        with RawClient(port) as client:
            message = client.request("POST", "/tokenize", body, *([] if body else ["Content-Length: 0"])).json["error"]
            assert f"at line {line}, column {column}: " in message["message"]


@pytest.mark.parametrize("path", FIELDS)
def test_fields_of_wrong_types(port: int, path: str) -> None:
    for name, value in itertools.product(FIELDS[path].split(), ODD_VALUES):
        body = json.dumps({**BASE[path], name: value}).encode()
        with RawClient(port) as client:
            check_fine(client.request("POST", path, body))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template"])
def test_odd_messages_and_tools(port: int, path: str) -> None:
    bodies = [{"messages": messages} for messages in ODD_MESSAGES]
    bodies += [{**BASE["/apply-template"], "tools": tools} for tools in ODD_TOOLS]
    for body in bodies:
        with RawClient(port) as client:
            check_fine(client.request("POST", path, json.dumps({**body, "max_tokens": 2}).encode()))


@pytest.mark.parametrize("path", "/health /props /slots /models / /v1/streams/lookup /slots/x /infill".split())
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_bodies_where_none_belong(port: int, path: str, method: str) -> None:
    for body in (b"{bad", b"\xff", b"x" * 100_000):
        with RawClient(port) as client:
            answer = client.request(method, path, body)
            assert answer.status in (200, 400, 404, 501)
            if answer.status != 200:
                check_error(answer)


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("how", ["close", "half", "reset"])
def test_requests_that_end_early(port: int, part: float, how: str) -> None:
    body = b'{"prompt":"a","n_predict":8}'
    whole = b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with RawClient(port, timeout=5) as client:
        client.send(whole[: int(len(whole) * part)])
        if how == "half":
            client.socket.shutdown(socket.SHUT_WR)
            assert client.answer() is None, "an incomplete request gets no answer"
        elif how == "reset":
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_random_damage_to_a_good_request(port: int) -> None:
    body = b'{"messages":[{"role":"user","content":"Hello"}],"max_tokens":2,"stream":false}'
    good = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    dice = random.Random(7)
    for _ in range(200):
        data = bytearray(good)
        for _ in range(dice.randint(1, 6)):
            position = dice.randrange(len(data))
            action = dice.randrange(3)
            if action == 0:
                data[position] = dice.randrange(256)
            elif action == 1:
                del data[position : position + dice.randint(1, 8)]
            else:
                data[position:position] = dice.randbytes(dice.randint(1, 4))
        with RawClient(port) as client:
            client.send(bytes(data))
            client.socket.shutdown(socket.SHUT_WR)
            answer = client.answer()
            if answer is None or (answer.status == 400 and not answer.body):
                continue  # incomplete, or not HTTP
            check_fine(answer)
