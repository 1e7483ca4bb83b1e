"""Send thousands of bad requests to a running server and look at what it holds afterwards: ``make fuzz``."""

from __future__ import annotations

import http.client
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from urllib.parse import urlsplit

import click

from bench.server import served
from compat_tests.environments import InstallError
from compat_tests.fuzz.endpoints import ENDPOINTS
from compat_tests.fuzz.mutate import Request, good_request, mutated
from compat_tests.fuzz.resources import held
from compat_tests.fuzz.schemathesis_run import install_schemathesis, run_schemathesis
from compat_tests.fuzz.verdict import fault

OPTIONS = ("--parallel", "4", "--ctx-size", "2048", "--metrics", "--slots", "--cache-ram", "64", "--predict", "16",
           "--embeddings", "--pooling", "mean")  # fmt: skip
WARM_UP = 300  # requests before what the server holds is looked at first
JOBS = 8


class Sender:
    """One connection after the other to a server; ``faults`` collects what went wrong."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._address = parts.hostname or "127.0.0.1", parts.port or 80
        self._timeout_s = timeout_s
        self.faults: list[str] = []
        self.statuses: Counter[int] = Counter()

    def send(self, request: Request) -> None:
        """Send it, read the whole answer, judge it."""
        try:
            status, body = self._exchange(request)
        except (OSError, http.client.HTTPException) as error:
            self.faults.append(f"{type(error).__name__}: {error} after {_shown(request)}")
            return
        self.statuses[status] += 1
        if wrong := fault(request, status, body):
            self.faults.append(f"{wrong} after {_shown(request)}")

    def _exchange(self, request: Request) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout_s)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _shown(request: Request) -> str:
    return f"{request.method} {request.path} {request.headers} {request.body[:600]!r}"


def requests(seed: int) -> Iterator[Request]:
    """Endless; the n-th one is the same in every run with this seed."""
    for number in itertools.count():
        yield mutated(Random(f"{seed}-{number}"))


def send_all(sender: Sender, wanted: Iterator[Request], n: int) -> None:
    with ThreadPoolExecutor(JOBS) as pool:
        for number, _ in enumerate(pool.map(sender.send, itertools.islice(wanted, n)), 1):
            if number % 1000 == 0:
                click.echo(f"{number} requests, {len(sender.faults)} faults", err=True)


def judge(url: str, pid: int, seed: int, n: int, timeout_s: float) -> tuple[list[str], dict[str, Any]]:
    """Send ``n`` requests; what is wrong, and figures for people."""
    sender, wanted = Sender(url, timeout_s), requests(seed)
    send_all(sender, wanted, min(WARM_UP, n))
    before = held(url, pid)
    send_all(sender, wanted, n - min(WARM_UP, n))
    after = held(url, pid)
    for endpoint in ENDPOINTS:  # good requests are answered as ever
        sender.send(good_request(endpoint))
    return [*sender.faults, *after.grown(before)], {"before": before, "after": after, "statuses": sender.statuses}


@click.command()
@click.option("--requests", "n", default=10_000, show_default=True, help="How many to send.")
@click.option("--seed", default=1, show_default=True, help="Another one sends other requests.")
@click.option("--examples", default=100, show_default=True, help="Schemathesis: requests for an endpoint; 0: it rests.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds without a byte that count as a hang.")
def main(n: int, seed: int, examples: int, timeout: float) -> None:
    """Exit with status 1 when a request hangs or is answered with an internal error, or when something leaks."""
    try:
        schemathesis = install_schemathesis() if examples else None
    except InstallError as error:
        raise click.ClickException(f"{error}\n--examples 0 does without schemathesis") from error
    started = time.monotonic()
    with served(OPTIONS) as (url, pid):
        faults, figures = judge(url, pid, seed, n, timeout)
        if schemathesis is not None:
            faults += run_schemathesis(schemathesis, url, seed, examples)
    for name, value in figures.items():
        click.echo(f"{name}: {dict(sorted(value.items())) if isinstance(value, Counter) else value}")
    for text in faults[:20]:
        click.echo(f"FAULT: {text}")
    click.echo(f"{n} requests (seed {seed}) in {time.monotonic() - started:.0f} s: {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
