"""One client with its task, and the verdict on what it did."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.clients.install import Tools
from compat_tests.clients.play import Play

FILE, BEFORE = "greeting.py", 'def greet(name):\n    return "Hello, " + name\n'
AFTER = BEFORE.replace("Hello", "Howdy")
QUESTION = 'In greeting.py change "Hello" to "Howdy".'


@dataclass(frozen=True)
class Place:
    """Where a case runs: its own home and work folder, and the server's address."""

    tools: Tools
    url: str
    home: Path
    work: Path


@dataclass(frozen=True)
class Command:
    """What to run, in the work folder, with these variables beside PATH and HOME."""

    arguments: Sequence[str | Path]
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """``environment`` and ``package``: where the client is installed. ``before`` and ``after``: the file's text.

    ``play`` makes the model do the task of agents whose prompts are too much for pyjet-tiny; None: it does it itself.
    """

    client: str
    environment: str
    package: str
    api: str
    command: Callable[[Place], Command]
    play: Callable[[Path], Play] | None = None
    file: str = FILE
    before: str = BEFORE
    after: str = AFTER


def run_client(case: Case, place: Place, timeout_s: float) -> str | None:
    """Let the client do its task; why it failed, or None."""
    file = place.work / case.file
    file.write_text(case.before)
    command = case.command(place)
    variables = {"PATH": os.environ["PATH"], "HOME": str(place.home), "TERM": "dumb", "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            command.arguments, cwd=place.work, env=variables | command.variables, timeout=timeout_s,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return f"it did not end within {timeout_s:.0f} s\n{_tail(error.output)}"
    except OSError as error:
        return f"it could not be started: {error}"
    finally:
        end_what_is_left(place.home)
    if done.returncode:
        return f"it ended with status {done.returncode}\n{_tail(done.stdout)}"
    if file.read_text() != case.after:
        return f"{case.file} holds {file.read_text()!r}\n{_tail(done.stdout)}"
    return None


def _tail(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")[-3000:]


def end_what_is_left(home: Path) -> None:
    """End processes that a client left behind: those that have this home, which is its own."""
    mark = f"HOME={home}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
