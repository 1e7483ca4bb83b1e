"""A server for the length of a measurement."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

PYJET = (sys.executable, "-c", "import sys; from pyjet.server.main import main; sys.exit(main())")


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running_server(
    options: Sequence[str] = (), timeout_s: float = 120, program: Sequence[str] = PYJET
) -> Iterator[str]:
    """Start pyjet-server or another server on a free port, wait until it is healthy, yield its URL, stop it.

    Raises RuntimeError with the end of its log when it does not become ready.
    """
    with served(options, timeout_s, program) as (url, _):
        yield url


@contextlib.contextmanager
def served(
    options: Sequence[str] = (), timeout_s: float = 120, program: Sequence[str] = PYJET
) -> Iterator[tuple[str, int]]:
    """The same with the server's process id beside the URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile() as log:
        command = [*program, "--host", "127.0.0.1", "--port", str(port), *options]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            if not _becomes_healthy(process, url, timeout_s):
                log.seek(0)
                tail = log.read()[-4000:].decode(errors="replace")
                raise RuntimeError(f"the server did not become ready in {timeout_s:.0f} s:\n{tail}")
            yield url, process.pid
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _becomes_healthy(process: subprocess.Popen[bytes], url: str, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url + "/health", timeout=5) as response:
                if response.status == 200:
                    return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False
