"""The short run of the fuzzer, in one process, and the fuzzer itself. The long one is ``make fuzz``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compat_tests.fuzz.endpoints import ENDPOINTS, Endpoint
from compat_tests.fuzz.mutate import Request, good_request, mutated
from compat_tests.fuzz.openapi import document
from compat_tests.fuzz.resources import Held
from compat_tests.fuzz.verdict import fault
from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, said

ENGINE = ScriptedEngine(said("ok"))
CLIENT = make_client(ENGINE, metrics=True)


def send(client: FlaskClient, request: Request) -> tuple[int, bytes]:
    response = client.open(request.path, method=request.method, data=request.body, headers=request.headers)
    return response.status_code, response.get_data()


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_bad_requests_get_an_answer(random: Random) -> None:
    request = mutated(random)
    status, body = send(CLIENT, request)
    assert fault(request, status, body) is None, request


def test_nothing_is_left_running() -> None:
    assert ENGINE.wait_idle()
    assert send(CLIENT, good_request(ENDPOINTS[0]))[0] == 200


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_the_examples_are_good(endpoint: Endpoint) -> None:
    status, body = send(CLIENT, good_request(endpoint))
    assert status == endpoint.status, body
    assert endpoint.example is None or set(endpoint.example) <= set(endpoint.fields)


def test_a_seed_repeats_its_requests() -> None:
    first, again = Random(7), Random(7)
    assert [mutated(first) for _ in range(50)] == [mutated(again) for _ in range(50)]


def test_the_mutations_are_of_all_kinds() -> None:
    random = Random(1)
    requests = [mutated(random) for _ in range(1000)]
    assert {request.path.split("?")[0] for request in requests} == {endpoint.path for endpoint in ENDPOINTS}
    assert len({request.body for request in requests}) > 500
    assert any(request.method == "PATCH" for request in requests)
    n_json = sum(is_json(request.body) for request in requests)
    assert 500 < n_json < 1000, "most are JSON, some are not"


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def test_the_description_names_every_field() -> None:
    paths = document()["paths"]
    schema = paths["/completion"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"prompt", "n_predict", "temperature", "stream"} <= set(schema["properties"])
    assert sum(len(methods) for methods in paths.values()) == len(ENDPOINTS)


@pytest.mark.parametrize(
    ("status", "body", "is_wrong"),
    [
        (200, b"anything", False),
        (400, b'{"error":{"code":400,"message":"no","type":"x"}}', False),
        (500, b'{"error":{"code":500,"message":"Failed to parse messages: x","type":"x"}}', False),
        (500, b'{"error":{"code":500,"message":"internal error: KeyError: 1","type":"x"}}', True),
        (500, b"<html>", True),
        (400, b'{"error":{"message":""}}', True),
        (502, b"", True),
    ],
)
def test_verdicts(status: int, body: bytes, is_wrong: bool) -> None:
    assert (fault(Request("POST", "/x", b""), status, body) is not None) == is_wrong
    assert (fault(Request("HEAD", "/x", b""), status, body) is not None) == (status == 502)


def test_only_slots_may_be_unavailable() -> None:
    body = b'{"error":{"code":503,"message":"no slot available","type":"unavailable_error"}}'
    assert fault(Request("GET", "/slots?fail_on_no_slot=1", b""), 503, body) is None
    assert fault(Request("POST", "/completion", b""), 503, body) == "status 503"


def test_what_counts_as_a_leak() -> None:
    before = Held(300.0, 20, 25, 0, 0)
    assert Held(350.0, 24, 30, 0, 0).grown(before) == []
    leaks = Held(400.0, 40, 100, 1, 1).grown(before)
    assert [leak.split()[0] for leak in leaks] == ["memory", "threads", "open", "1"]


@pytest.fixture(autouse=True)
def _short_texts() -> Iterator[None]:
    """Whatever a request asked for before, the next one gets the short text."""
    ENGINE.say(said("ok"))
    yield
