"""The clients, installed apart from pyjet: two Python environments and one folder of npm packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
STAMP = ".installed"  # a copy of the list of packages that a folder holds


class InstallError(Exception):
    """A client cannot be installed; the message says why."""


@dataclass(frozen=True)
class Tools:
    """Where the clients are, below ``root``."""

    root: Path

    @property
    def node_bin(self) -> Path:
        return self.root / "node" / "node_modules" / ".bin"

    def python(self, environment: str) -> Path:
        return self.root / environment / "bin" / "python"

    def version(self, environment: str, package: str) -> str:
        """Of an installed package; ``environment`` is "node" for those of npm."""
        if environment == "node":
            record = json.loads((self.root / "node" / "node_modules" / package / "package.json").read_text())
            return str(record["version"])
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return subprocess.run(
            [self.python(environment), "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()

    def install(self, environment: str) -> None:
        """What the list of an environment names, unless that is there. Raises InstallError."""
        folder = self.root / environment
        source = HERE / ("package.json" if environment == "node" else f"requirements-{environment}.txt")
        stamp = folder / STAMP
        if stamp.exists() and stamp.read_text() == source.read_text():
            return
        print(f"installing what {source.name} names into {folder}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        if environment == "node":
            _install_node(folder, source)
        else:
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(self.python(environment)), "-m", "pip", "install", "--quiet", "-r", str(source)])
        stamp.write_text(source.read_text())


def _install_node(folder: Path, source: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("npm was not found; install Node.js 20 or newer")
    shutil.copy(source, folder / "package.json")
    _run([npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent"])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise InstallError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
