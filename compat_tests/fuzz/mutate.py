"""Good requests with a few things wrong. All choices come from one ``random.Random``, so a seed repeats a request."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

from compat_tests.fuzz.endpoints import ENDPOINTS, Endpoint

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31 - 1, 2**31, -(2**63), 2**70, 0.5, -0.0, 1e308, -1e-320, "", "x", "auto",
    "none", "\x00", "é🙂", "\ud800", "<|im_end|>", "<tool_call>\n<function=", "</think>", "x" * 3000, "null", "-1", [],
    [[]], [None], [0], [-1], [2**40], ["x", 1, None], {}, {"": ""}, {"type": "text"}, {"type": "object"},
    {"$ref": "#"}, {"role": "user"}, [{"role": "assistant"}], [{"type": "function"}],
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
TYPES = ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")
DEEP = 3000  # levels; Python's own limit is a third of it


@dataclass(frozen=True)
class Request:
    """What goes over the wire."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def good_request(endpoint: Endpoint) -> Request:
    """The endpoint's example."""
    body = b"" if endpoint.example is None else json.dumps(endpoint.example).encode()
    # 7 is none of the odd values, so that no conversation has this name.
    path = endpoint.path + "?" * bool(endpoint.query) + "&".join(f"{name}=7" for name in endpoint.query)
    return Request(endpoint.method, path, body, {"Content-Type": "application/json"})


def mutated(random: Random, endpoints: tuple[Endpoint, ...] = ENDPOINTS) -> Request:
    """A request to one of the endpoints with one to four wrong values, and now and then damage to what carries them."""
    endpoint = random.choice(endpoints)
    body = b""
    if endpoint.example is not None:
        value: Any = copy.deepcopy(endpoint.example)
        for _ in range(random.randint(1, 4)):
            value = _with_a_fault(random, endpoint, value)
        body = json.dumps(value).encode("utf-8", "surrogatepass")
    method, path, headers = endpoint.method, endpoint.path, {"Content-Type": "application/json"}
    if endpoint.query:
        path += "?" + "&".join(f"{name}={quote(_word(random), safe='')}" for name in endpoint.query)
    damage = random.randint(0, 9)
    if damage == 0:
        body = _damaged(random, body)
    elif damage == 1:
        headers["Content-Type"] = random.choice(TYPES)
    elif damage == 2:
        method = random.choice(METHODS)
    elif damage == 3:
        headers["X-Conversation-Id"] = quote(_word(random), safe="")
    return Request(method, path, body, headers)


def _word(random: Random) -> str:
    value = random.choice(ODD_VALUES)
    return str(value).encode("utf-8", "replace").decode()[:200]


def _with_a_fault(random: Random, endpoint: Endpoint, value: Any) -> Any:
    """One place of the body has another value, is gone, is there twice, or a field comes that was not there."""
    places = list(_places(value))
    kind = random.randint(0, 5)
    if kind == 0 or not places:
        name = random.choice([*endpoint.fields, "unknown"])
        return {**value, name: copy.deepcopy(random.choice(ODD_VALUES))} if isinstance(value, dict) else value
    holder, key = random.choice(places)
    if kind == 1:
        del holder[key]
    elif kind == 2 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif kind == 3:
        holder[key] = [holder[key]]
    else:
        holder[key] = copy.deepcopy(random.choice(ODD_VALUES))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in it, at all depths."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _damaged(random: Random, body: bytes) -> bytes:
    """Bytes that are no longer the JSON that they were."""
    at = random.randint(0, max(0, len(body) - 1))
    kind = random.randint(0, 5)
    if kind == 0:
        return body[:at]
    if kind == 1:
        return body[:at] + bytes([random.randint(0, 255)]) + body[at + 1 :]
    if kind == 2:
        return body[:at] + b"\xff\xfe\x80" + body[at:]
    if kind == 3:
        return b"[" * DEEP + body
    if kind == 4:
        return b'{"a":' * DEEP + b"1" + b"}" * DEEP
    return random.choice([b"", b"null", b"[]", b"NaN", b"1e999", b'"x"', b"{" + b'"a":1,' * 2000 + b'"b":2}'])
