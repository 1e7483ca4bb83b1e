"""Servers forked from a process that has imported pyjet already, so that each starts in a fraction of the time.

The suite starts more than two hundred servers. Each is a process of its own with an engine process of its own, as
always; only the interpreter and the imports are shared (multiprocessing's "forkserver").
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from typing import IO, Any

from pyjet.server import routes

PRELOAD = [
    *("pyjet.server.main", "pyjet.engine.child", "pyjet.engine.build", "compat_tests.llama_server.warm"),
    *(f"{routes.__name__}.{module.name}" for module in pkgutil.iter_modules(routes.__path__)),
]


class WarmServer:
    """What the suite uses of a ``subprocess.Popen``."""

    def __init__(self, arguments: Sequence[str], output: IO[Any] | int | None, env: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        details = (list(arguments[1:]), dict(env), os.getcwd(), _Output(_descriptor(output)))
        self._process = context.Process(target=_serve, args=details)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("pyjet-server", timeout or 0.0)
        return self._process.exitcode


def _descriptor(output: IO[Any] | int | None) -> int:
    if isinstance(output, int):
        return output
    return (output or sys.stdout).fileno()


class _Output:
    """A file descriptor that travels to the forked process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return _received, (DupFd(self._descriptor),)


def _received(duplicate: Any) -> int:
    descriptor: int = duplicate.detach()
    return descriptor


def _serve(arguments: list[str], environment: dict[str, str], folder: str, output: int) -> None:
    """The forked process: become pyjet-server."""
    from pyjet.server.main import main

    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _fork_engines()
    sys.exit(main(arguments))


def _fork_engines() -> None:
    """Let the engine's process come from the same place: it would start a new interpreter."""
    get_context = multiprocessing.get_context
    multiprocessing.get_context = (  # type: ignore[assignment]
        lambda method=None: get_context("forkserver" if method == "spawn" else method)
    )
