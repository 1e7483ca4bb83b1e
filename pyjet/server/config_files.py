"""Option values from files: llama.cpp's ``config.ini``, of the system and of the user.

The syntax is llama.cpp's: ``key = value`` lines, where a key is an option without its dashes or its environment
variable, and ``;`` or ``#`` begins a comment anywhere. Lines before the first ``[section]`` and those in ``[*]`` and
``[default]`` count; other sections belong to other programs. Reference: llama.cpp, common/preset.cpp (b11434).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SYSTEM_FILE = Path("/etc/llama.cpp/config.ini")

_OURS = ("*", "default")
_SECTION = re.compile(r"\[[ \t]*([^\]]*?)[ \t]*\][ \t]*(?:[;#].*)?")
_ENTRY = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*([^;#]*?)[ \t]*(?:[;#].*)?")
_NOTHING = re.compile(r"[ \t]*(?:[;#].*)?")


class ConfigError(Exception):
    """A file that cannot be read or understood; the text says which, where and why."""


@dataclass(frozen=True)
class Entry:
    """One ``key = value``. ``place`` is the file and line for messages."""

    key: str
    value: str
    place: str


def config_paths(environment: Mapping[str, str]) -> list[Path]:
    """Files that exist, lowest precedence first."""
    paths = [SYSTEM_FILE]
    folder = environment.get("XDG_CONFIG_HOME") or ""
    if not folder and environment.get("HOME"):
        folder = f"{environment['HOME']}/.config"
    if folder:
        paths.append(Path(folder) / "llama.cpp" / "config.ini")
    return [path for path in paths if path.is_file()]


def read_config(path: Path) -> list[Entry]:
    """The entries for a server, those of ``[*]`` first, as llama.cpp applies them. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"failed to read config file {path}: {error}") from None
    entries: dict[str, list[Entry]] = {name: [] for name in _OURS}
    section = "default"
    for number, line in enumerate(text.splitlines(), 1):
        if _NOTHING.fullmatch(line):
            continue
        if found := _SECTION.fullmatch(line):
            section = found[1]
        elif entry := _ENTRY.fullmatch(line):
            if section in entries and entry[1] != "version":
                entries[section].append(Entry(entry[1], entry[2], f"{path}, line {number}"))
        else:
            raise ConfigError(f"failed to parse config file {path}, line {number}: expected key = value or [section]")
    return [entry for name in _OURS for entry in entries[name]]
