"""A thousand clients that leave at any moment, on a real engine core: nothing is left of them."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from dataclasses import replace

from pyjet.engine.local import LocalEngine
from tests.engine.fake_native import LIMITS, FakeNative
from tests.server.live import open_request, serving
from tests.server.scripted import make_service

N_CLIENTS, N_THREADS = 1000, 8


def leave(port: int, chance: random.Random) -> None:
    """Ask, read for a while or not at all, and go, politely or not."""
    prompt = [chance.randrange(48) for _ in range(chance.choice([1, 10, 30, 100]))]
    body = {"prompt": prompt, "stream": chance.random() < 0.7, "n_predict": chance.choice([-1, 3, 100])}
    with open_request(port, "/completion", body) as connection:
        connection.settimeout(chance.choice([0.001, 0.005, 0.02]))
        try:
            for _ in range(chance.randrange(4)):
                connection.recv(4096)
        except TimeoutError:
            pass
        if chance.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_pool_slots_and_threads_are_clean_afterwards() -> None:
    sizes = replace(LIMITS, n_ctx_slot=200, n_ctx_total=500, max_rows=16, n_vocab=48, checkpoint_gap=4)
    native = FakeNative(sizes)
    n_before = threading.active_count()
    with LocalEngine(native, sizes) as engine, serving(make_service(engine)) as port:
        core = engine._loop._core

        def storm(number: int) -> None:
            chance = random.Random(number)
            for _ in range(N_CLIENTS // N_THREADS):
                leave(port, chance)

        threads = [threading.Thread(target=storm, args=(number,)) for number in range(N_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        deadline = time.monotonic() + 30
        while (engine.counters().requests_processing or engine.counters().requests_deferred) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.02)
        counters = engine.counters()
        assert counters.requests_total > N_CLIENTS // 4, "many leave before the engine hears of them"
        assert counters.requests_processing == counters.requests_deferred == 0
        assert not any(slot.is_processing for slot in engine.slots())
        core.check()
        core.forget_all()
        core.check()
        assert engine.counters().pages_used == engine.counters().host_bytes == 0
        assert not engine._streams._streams
    deadline = time.monotonic() + 10
    while threading.active_count() > n_before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= n_before, "a thread still serves a client that left"
