"""The runner of real clients: what the played model says, and the verdicts. SDKs that tests need anyway really run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.clients.__main__ import run_played, table
from compat_tests.clients.agents import AGENTS
from compat_tests.clients.case import FILE, Case, Command, Place, run_client
from compat_tests.clients.install import Tools
from compat_tests.clients.play import Play, call_text
from compat_tests.clients.played_server import PlayedServer, played_server
from compat_tests.clients.sdks import SCRIPTS, SDKS
from tests.server.real import has_library

CALL = call_text("edit_file", path=FILE, old_text="Hello", new_text="Howdy")


def test_the_turn_follows_from_the_results_so_far() -> None:
    play = Play(["first", "second"])
    tools = "<tools>\n{}\n</tools>"
    assert play.answer(tools) == "first"
    assert play.answer(tools + "<tool_response>1</tool_response>") == "second"
    assert play.answer(tools + "<tool_response>1</tool_response>" * 5) == "second"
    assert play.answer("a request without tools") == play.aside
    assert Play(["first"], aside=None).answer("a request without tools") == "first"


def place(tmp_path: Path, url: str = "") -> Place:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    return Place(Tools(tmp_path), url, home, work)


def shell(script: str) -> Case:
    return Case("shell", "", "", "", lambda _place: Command(["sh", "-c", script]))


@pytest.mark.parametrize(
    ("script", "timeout_s", "failure"),
    [
        (f"sed -i s/Hello/Howdy/ {FILE}", 60, None),
        ("true", 60, "greeting.py holds"),
        (f"sed -i s/Hello/Howdy/ {FILE}; echo why; exit 3", 60, "ended with status 3\nwhy"),
        ("sleep 60", 0.2, "did not end within"),
    ],
)
def test_verdicts(tmp_path: Path, script: str, timeout_s: float, failure: str | None) -> None:
    found = run_client(shell(script), place(tmp_path), timeout_s)
    assert (found is None) if failure is None else (found is not None and failure in found)


def test_a_client_that_is_not_there(tmp_path: Path) -> None:
    missing = Case("missing", "", "", "", lambda place: Command([place.work / "nothing"]))
    assert "could not be started" in (run_client(missing, place(tmp_path), 5) or "")


def test_nothing_that_a_client_started_is_left(tmp_path: Path) -> None:
    """A daemon in a session of its own, with its pipes closed, as agents leave it behind."""
    here = place(tmp_path)
    start = f"sed -i s/Hello/Howdy/ {FILE}; setsid sleep 60 >/dev/null 2>&1 & echo $! >pid"
    assert run_client(shell(start), here, 60) is None
    pid = int((here.work / "pid").read_text())
    end = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Zombies, which nobody has waited for yet, do not run."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_every_client_has_a_pinned_version() -> None:
    folder = Path(SCRIPTS).parent
    for case in [*SDKS, *AGENTS]:
        name = "package.json" if case.environment == "node" else f"requirements-{case.environment}.txt"
        assert case.package in (folder / name).read_text()


def test_the_table_is_aligned() -> None:
    row = {"client": "a", "version": "1.0", "api": "/x", "model": "played", "result": "ok"}
    head, first, second = table([row, {**row, "client": "a longer name"}]).splitlines()
    assert first.index("1.0") == second.index("1.0") == head.index("version")


@pytest.fixture(scope="module")
def server() -> Iterator[PlayedServer]:
    if not has_library():
        pytest.skip("libpyjet is not built")
    with played_server() as played:
        yield played


def sdk_case(name: str, way: str, api: str) -> Case:
    """An SDK's script, under the Python that runs the tests, with a played model."""
    def command(place: Place) -> Command:
        return Command([sys.executable, SCRIPTS / f"{name}.py", place.url, way], {"PYTHONPATH": ":".join(sys.path)})

    return Case(name, "", "", api, command, lambda _work: Play([CALL, "Done."]))


@pytest.mark.parametrize("way", ["whole", "stream"])
@pytest.mark.parametrize(
    ("name", "package", "api"),
    [
        ("openai_chat", "openai", "/v1/chat/completions"),
        ("openai_responses", "openai", "/v1/responses"),
        ("anthropic_messages", "anthropic", "/v1/messages"),
    ],
)
def test_sdks_change_a_file(server: PlayedServer, name: str, package: str, api: str, way: str) -> None:
    pytest.importorskip(package)
    assert run_played(sdk_case(name, way, api), Tools(Path()), server, 100) is None
    assert server.requests == [("POST", api, 200)] * 2


def test_what_the_server_refuses_is_a_failure(server: PlayedServer) -> None:
    case = sdk_case("openai_chat", "whole", "/v1/chat/completions")
    ask = f"""{sys.executable} -c "import urllib.request as r; r.urlopen('$0/nothing')" 2>/dev/null; """
    asks = replace(case, command=lambda place: Command(["sh", "-c", ask + f"sed -i s/Hello/Howdy/ {FILE}", place.url]))
    assert run_played(asks, Tools(Path()), server, 100) == "the server answered GET /nothing: 404"
    silent = replace(case, command=lambda _place: Command(["sed", "-i", "s/Hello/Howdy/", FILE]))
    assert "sent 0 requests" in (run_played(silent, Tools(Path()), server, 100) or "")
