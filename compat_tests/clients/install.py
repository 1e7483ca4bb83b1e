"""The clients, installed apart from pyjet: two Python environments and one folder of npm packages."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from compat_tests.environments import InstallError, install, install_python, is_installed

HERE = Path(__file__).resolve().parent


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
        if environment == "node":
            _install_node(folder, HERE / "package.json")
        else:
            install_python(folder, HERE / f"requirements-{environment}.txt")


def _install_node(folder: Path, packages: Path) -> None:
    if is_installed(folder, packages):
        return
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("npm was not found; install Node.js 20 or newer")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(packages, folder / "package.json")
    install(folder, packages, [[npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent"]])
