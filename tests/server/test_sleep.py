"""--sleep-idle-seconds: the model goes when nobody needs it and comes back with the next request that does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from pyjet.engine.counters import Counters
from pyjet.server.option_parser import OptionError, parse
from pyjet.server.options import ServerOptions
from pyjet.server.service import Service
from pyjet.server.sleeping_engine import SleepingEngine
from pyjet.server.startup import StartupError
from tests.scripted_engine import Script, ScriptedEngine
from tests.server.live import open_request, read_until, serving
from tests.server.scripted import said, tiny_model, tiny_template, tiny_tokenizer
from tests.server.test_cancel import wait_until
from tests.server.test_http_listen import finish, has_library, start

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}
IDLE = 0.3


class Closing(ScriptedEngine):
    """Counts its requests, and knows whether it was closed."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__(*scripts)
        self.closed = False

    def counters(self) -> Counters:
        busy = sum(slot.is_processing for slot in self.slots())
        return Counters(requests_total=len(self.requests), n_tokens_max=7, requests_processing=busy)

    def close(self) -> None:
        self.closed = True


class House:
    """A sleeping engine whose incarnations can be looked at."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.engines = [Closing(script)]
        self.broken = False
        self.sleeper = SleepingEngine(self.engines[0], self._load, IDLE)

    def _load(self) -> ScriptedEngine:
        if self.broken:
            raise StartupError("no memory")
        self.engines.append(Closing(self.script))
        return self.engines[-1]


@contextmanager
def sleepy(script: Script | None = None, **options: Any) -> Iterator[tuple[House, str]]:
    house = House(script or said("</think>\n\nHello"))
    service = Service(tiny_model(), tiny_tokenizer(), tiny_template(), house.sleeper,
                      ServerOptions(sleep_idle_seconds=1, metrics=True, **options), model_id="tiny")  # fmt: skip
    try:
        with serving(service) as port:
            yield house, f"http://127.0.0.1:{port}"
    finally:
        house.sleeper.close()


def asleep(url: str) -> bool:
    return bool(requests.get(f"{url}/props", timeout=5).json()["is_sleeping"])


def test_it_sleeps_and_wakes() -> None:
    with sleepy() as (house, url):
        assert wait_until(lambda: asleep(url), 10) and house.engines[0].closed
        answer = requests.post(url + CHAT, json=HI, timeout=10).json()
        assert answer["choices"][0]["message"]["content"] == "Hello"
        assert len(house.engines) == 2 and not house.engines[1].closed
        assert not asleep(url)
        assert wait_until(lambda: asleep(url), 10)


def test_watching_does_not_wake_it() -> None:
    with sleepy() as (house, url):
        requests.post(url + CHAT, json=HI, timeout=10)
        assert wait_until(lambda: asleep(url), 10)
        n_engines = len(house.engines)  # it may have slept before the request, too
        for path in ("/health", "/v1/health", "/props", "/models", "/v1/models", "/", "/nope"):
            requests.get(url + path, timeout=5)
        metrics = requests.get(f"{url}/metrics", timeout=5).text
        assert "pyjet:requests_total 1\n" in metrics, "what was counted is still there"
        requests.options(url + CHAT, timeout=5)
        time.sleep(2 * IDLE)
        assert asleep(url) and len(house.engines) == n_engines


@pytest.mark.parametrize(("method", "path", "body"), [
    ("GET", "/slots", None), ("POST", "/tokenize", {"content": "a"}), ("POST", "/detokenize", {"tokens": [5]}),
    ("POST", "/apply-template", HI), ("POST", f"{CHAT}/input_tokens", HI),
    ("POST", "/v1/responses/input_tokens", {"input": "Hi"}), ("POST", "/v1/messages/count_tokens", HI),
    ("POST", "/completion", {"prompt": "a"}), ("POST", "/v1/messages", {**HI, "max_tokens": 5}),
])  # fmt: skip
def test_everything_else_wakes_it(method: str, path: str, body: Any) -> None:
    with sleepy() as (house, url):
        assert wait_until(lambda: asleep(url), 10)
        assert requests.request(method, url + path, json=body, timeout=10).status_code == 200
        assert len(house.engines) == 2 and not asleep(url)


def test_who_has_no_key_does_not_wake_it() -> None:
    with sleepy(api_keys=["k"]) as (house, url):
        assert wait_until(lambda: house.sleeper.is_sleeping, 10)
        assert requests.post(url + CHAT, json=HI, timeout=5).status_code == 401
        assert house.sleeper.is_sleeping


def test_it_stays_awake_while_somebody_reads() -> None:
    with sleepy(Script([5], repeat=True, delay=0.01)) as (house, url):
        port = int(url.rpartition(":")[2])
        connection = open_request(port, "/completion", {"prompt": "a", "stream": True})
        read_until(connection, b"data:")
        engine = house.engines[-1]  # on a busy machine the first one may have slept before the request came
        time.sleep(4 * IDLE)
        assert not asleep(url) and house.engines[-1] is engine and not engine.closed
        connection.close()
        assert wait_until(lambda: asleep(url), 10)


def test_a_recorded_stream_without_its_client_keeps_it_awake() -> None:
    with sleepy(Script([5], repeat=True, delay=0.01)) as (house, url):
        port = int(url.rpartition(":")[2])
        body = {**HI, "stream": True, "max_tokens": 150}
        connection = open_request(port, CHAT, body, {"X-Conversation-Id": "c"})
        read_until(connection, b"data:")
        engine = house.engines[-1]
        connection.close()
        time.sleep(2 * IDLE)
        assert house.engines[-1] is engine and not engine.closed
        assert wait_until(lambda: asleep(url), 20)
        assert b"[DONE]" in requests.get(f"{url}/v1/stream?conv_id=c", timeout=10).content


def test_totals_go_on_over_a_sleep() -> None:
    with sleepy() as (house, url):
        for _ in range(2):
            requests.post(url + CHAT, json=HI, timeout=10)
            assert wait_until(lambda: asleep(url), 10)
        total = house.sleeper.counters()
        assert (total.requests_total, total.n_tokens_max, total.requests_processing) == (2, 7, 0)


def test_a_model_that_does_not_come_back() -> None:
    """The request says why, the server lives, and the next one tries again."""
    with sleepy() as (house, url):
        assert wait_until(lambda: asleep(url), 10)
        house.broken = True
        for _ in range(2):
            answer = requests.post(url + CHAT, json=HI, timeout=10)
            assert answer.status_code == 503
            assert answer.json()["error"]["message"] == "the model could not be loaded again: no memory"
        assert requests.get(f"{url}/health", timeout=5).ok
        house.broken = False
        assert requests.post(url + CHAT, json=HI, timeout=10).status_code == 200


def test_many_wake_it_once() -> None:
    with sleepy() as (house, url):
        assert wait_until(lambda: asleep(url), 10)
        port = int(url.rpartition(":")[2])
        connections = [open_request(port, CHAT, HI) for _ in range(8)]
        for connection in connections:
            assert b'"content":"Hello"' in read_until(connection, b'"timings"')
            connection.close()
        assert len(house.engines) == 2


@pytest.mark.parametrize("value", ["0", "-2", "x"])
def test_wrong_times(value: str) -> None:
    with pytest.raises(OptionError, match="--sleep-idle-seconds"):
        parse(["--sleep-idle-seconds", value], {})


@pytest.mark.skipif(not has_library(), reason="libpyjet is not built")
def test_the_real_engine_sleeps_and_wakes() -> None:
    process = start("--port", "0", "-c", "512", "-np", "1", "--sleep-idle-seconds", "1")
    assert process.stderr is not None
    url = next(line.split("listening on ")[1].strip() for line in process.stderr if "listening on " in line)
    assert wait_until(lambda: asleep(url), 30)
    answer = requests.post(f"{url}/completion", json={"prompt": "a", "n_predict": 2}, timeout=60).json()
    assert answer["tokens_predicted"] == 2 and not asleep(url)
    process.terminate()
    assert finish(process)[0] == 0
