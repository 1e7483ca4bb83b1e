"""config.ini of the system and of the user: where they are, what counts, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjet.server import config_files
from pyjet.server.config_files import config_paths, read_config
from pyjet.server.option_parser import CommandLine, OptionError, parse


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "etc" / "config.ini"
    path.parent.mkdir()
    monkeypatch.setattr(config_files, "SYSTEM_FILE", path)
    return path


@pytest.fixture
def user(tmp_path: Path) -> Path:
    path = tmp_path / "home" / ".config" / "llama.cpp" / "config.ini"
    path.parent.mkdir(parents=True)
    return path


def parse_at_home(tmp_path: Path, *arguments: str, **variables: str) -> CommandLine:
    return parse(arguments, {"HOME": str(tmp_path / "home"), **variables})


def test_precedence(tmp_path: Path, system: Path, user: Path) -> None:
    system.write_text("ctx-size = 1024\nport = 1001\ntemp = 0.1\ntop-k = 1\n")
    user.write_text("port = 1002\ntemp = 0.2\ntop-k = 2\n")
    line = parse_at_home(tmp_path, "--top-k", "4", LLAMA_ARG_TEMPERATURE="0.3", LLAMA_ARG_TOP_K="3")
    options = line.options
    assert (options.ctx_size, options.port, options.temp, options.top_k) == (1024, 1002, 0.3, 4)
    assert {"ctx_size", "port", "temp", "top_k"} <= options.user_set
    assert line.config_files == [str(system), str(user)]
    assert all("ignoring" not in warning for warning in line.warnings)


def test_places(tmp_path: Path, system: Path, user: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    assert config_paths(home) == [] and parse([], home).config_files == []
    user.write_text("")
    assert config_paths(home) == [user]
    elsewhere = tmp_path / "xdg" / "llama.cpp" / "config.ini"
    assert config_paths({**home, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}) == []
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("")
    assert config_paths({**home, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}) == [elsewhere]
    assert config_paths({**home, "XDG_CONFIG_HOME": ""}) == [user]
    system.write_text("")
    assert config_paths({}) == [system]


def test_syntax(tmp_path: Path, user: Path, system: Path) -> None:
    user.write_text(
        "; comment\n# comment\n\nversion = 1\nalias=a,b ; names\n  \n"
        "[another-model]\nport = 1\n\n[ * ]\nctx-size = 256 # all\ntop-k = 7\n[default]\ntop-k = 8\n"
        "[*:Q4_K_M]\nport = 2\n"
    )
    options = parse_at_home(tmp_path).options
    assert (options.alias, options.ctx_size, options.top_k, options.port) == (["a", "b"], 256, 8, 8080)


@pytest.mark.parametrize(("text", "field", "value"), [
    ("c = 512", "ctx_size", 512), ("LLAMA_ARG_CTX_SIZE = 512", "ctx_size", 512), ("metrics = on", "metrics", True),
    ("metrics = false", "metrics", False), ("no-slots = true", "slots", False), ("no-slots = off", "slots", True),
    ("slots = 0", "slots", False), ("reasoning-format = none", "reasoning_format", "none"), ("host = a.sock", "host",
     ["a.sock"]), ("api-key = x", "api_keys", ["x"]), ("kvu = 1", "kv_unified", True),
    ("no-kvu = 1", "kv_unified", False),
])  # fmt: skip
def test_keys_and_values(tmp_path: Path, user: Path, system: Path, text: str, field: str, value: object) -> None:
    user.write_text(text)
    assert getattr(parse_at_home(tmp_path).options, field) == value


def test_unknown_keys_belong_to_other_programs(tmp_path: Path, user: Path, system: Path) -> None:
    user.write_text("no-such-option = 1\nhelp = 1\nport = 9\nthreads-draft = 2\n")
    line = parse_at_home(tmp_path)
    assert line.options.port == 9 and not line.action
    assert line.warnings == [
        f"ignoring option 'no-such-option' of {user}, line 1: not supported by this program",
        f"ignoring option 'help' of {user}, line 2: not supported by this program",
        "threads-draft has no effect: drafts come from the model itself, inside the main step",
    ]


@pytest.mark.parametrize(("text", "message"), [
    ("\nport = many", 'error while handling "port" in {path}, line 2: expected an integer, got "many"'),
    ("metrics = perhaps", 'error while handling "metrics" in {path}, line 1: unknown value "perhaps"'),
    ("mmproj = x", 'error while handling "mmproj" in {path}, line 1: this server is for text only; start without it'),
    ("port 5", "error: failed to parse config file {path}, line 1: expected key = value or [section]"),
    ("[open\nport = 5", "error: failed to parse config file {path}, line 1"),
    ("5 = 5", "error: failed to parse config file {path}, line 1"),
])  # fmt: skip
def test_mistakes_say_where(tmp_path: Path, user: Path, system: Path, text: str, message: str) -> None:
    user.write_text(text)
    with pytest.raises(OptionError) as failure:
        parse_at_home(tmp_path)
    assert str(failure.value).startswith(message.format(path=user))


def test_files_that_cannot_be_read(tmp_path: Path, user: Path, system: Path) -> None:
    user.write_bytes(b"port = \xff")
    with pytest.raises(OptionError, match=f"failed to read config file {user}"):
        parse_at_home(tmp_path)
    user.unlink()
    user.mkdir()
    assert parse_at_home(tmp_path).config_files == []


def test_entries_know_their_lines(user: Path) -> None:
    user.write_text("a = 1\n\n[*]\nb =\n")
    assert [(entry.key, entry.value, entry.place) for entry in read_config(user)] == [
        ("b", "", f"{user}, line 4"), ("a", "1", f"{user}, line 1")]  # fmt: skip
