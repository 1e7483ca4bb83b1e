"""Finds and loads libpyjet, once per process."""

from __future__ import annotations

import ctypes as C
import functools
import os
import sys
from pathlib import Path

from pyjet.native.structs import ABI_VERSION, PROTOTYPES

STATUS_NAMES = ("ok", "argument", "model", "memory", "device", "cancelled", "internal")
NO_LIBRARY = -1


class NativeError(Exception):
    """A call into libpyjet failed. ``code`` is a pj_status (or -1: the library itself is missing or wrong)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def kind(self) -> str:
        """The status as a word: argument, model, memory, device, cancelled, internal or library."""
        return STATUS_NAMES[self.code] if 0 <= self.code < len(STATUS_NAMES) else "library"

    def __reduce__(self) -> tuple[type[NativeError], tuple[int, str]]:
        return NativeError, (self.code, self.message)


def library_name() -> str:
    return {"darwin": "libpyjet.dylib", "win32": "pyjet.dll"}.get(sys.platform, "libpyjet.so")


def library_path() -> Path:
    """Where libpyjet is: $PYJET_LIBRARY, beside this package, or the newest one below the checkout's build/."""
    if override := os.environ.get("PYJET_LIBRARY"):
        if not Path(override).is_file():
            raise NativeError(NO_LIBRARY, f"PYJET_LIBRARY names {override}, which is not a file")
        return Path(override)
    installed = Path(__file__).with_name(library_name())
    if installed.is_file():
        return installed
    root = Path(__file__).resolve().parents[2]
    built = sorted((root / "build").rglob(library_name()), key=lambda p: p.stat().st_mtime)
    if built:
        return built[-1]
    raise NativeError(
        NO_LIBRARY,
        f"{library_name()} was not found; build it with `pip install .` (or set PYJET_LIBRARY to the built file)",
    )


@functools.cache
def load_library() -> C.CDLL:
    """The loaded library with all prototypes set. Calls release the GIL."""
    path = library_path()
    try:
        lib = C.CDLL(str(path))
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(lib, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise NativeError(NO_LIBRARY, f"cannot use {path}: {error}") from error
    if (version := lib.pj_abi_version()) != ABI_VERSION:
        raise NativeError(NO_LIBRARY, f"{path} has ABI version {version}, this package needs {ABI_VERSION}: rebuild")
    return lib


def check_status(lib: C.CDLL, status: int) -> None:
    """Raise NativeError with the library's sentence unless ``status`` is PJ_OK."""
    if status != 0:
        text = lib.pj_last_error()
        raise NativeError(status, text.decode("utf-8", "replace") if text else f"libpyjet returned status {status}")
