"""Folders with programs that are installed apart from pyjet's own environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STAMP = ".installed"  # a copy of the list of packages that a folder holds


class InstallError(Exception):
    """Something cannot be installed; the message says why."""


def is_installed(folder: Path, packages: Path) -> bool:
    """Whether the folder holds what the list ``packages`` names now."""
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text() == packages.read_text()


def install(folder: Path, packages: Path, commands: Sequence[Sequence[str]]) -> None:
    """Run the commands that put what a list names into a folder, unless that is there. Raises InstallError."""
    if is_installed(folder, packages):
        return
    print(f"installing what {packages.name} names into {folder}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise InstallError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    (folder / STAMP).write_text(packages.read_text())


def install_python(folder: Path, requirements: Path) -> None:
    """A virtual environment with what a list of requirements names, unless it is there. Raises InstallError."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    install(folder, requirements, [[sys.executable, "-m", "venv", str(folder)], pip])
