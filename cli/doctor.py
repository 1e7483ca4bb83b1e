"""pyjet doctor: is everything here that pyjet needs, and what was it built for?"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import click

from pyjet import __version__

PACKAGES = ("numpy", "gguf", "flask", "waitress", "click", "jinja2", "tokenizers", "rich", "llguidance")


class Missing(Exception):
    """Something that pyjet cannot work without."""


@click.command()
def doctor() -> None:
    """Check compiler, GPU, driver, the native library and the Python packages of this machine.

    Exit status 1 when something is missing that pyjet cannot work without; a missing GPU or compiler
    is only noted, because the CPU backend and a built library need neither.
    """
    healthy = True
    for name, check in CHECKS.items():
        try:
            click.echo(f"{name:16} {check()}")
        except Missing as problem:
            healthy = False
            click.echo(f"{name:16} MISSING: {problem}")
    click.echo("all that is needed is here" if healthy else "pyjet cannot work yet: see MISSING above")
    sys.exit(0 if healthy else 1)


def output_of(*command: str) -> str | None:
    """Standard output of a command, None when it is not installed or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def check_version() -> str:
    return f"{__version__}, Python {platform.python_version()} on {platform.system()} {platform.machine()}"


def check_packages() -> str:
    found, absent = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    if absent:
        raise Missing(f"{', '.join(absent)}; install with: {sys.executable} -m pip install {' '.join(absent)}")
    return ", ".join(found)


def check_library() -> str:
    from pyjet.native import NativeError, build_info, library_path

    try:
        return f"{build_info()} ({library_path()})"
    except NativeError as error:
        raise Missing(str(error)) from error


def check_processor() -> str:
    from pyjet.native import NativeError, cpu_isa

    try:
        return f"{processor_name()}, kernels for {cpu_isa()}"
    except NativeError:
        return processor_name()


def processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            match = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1) if match else platform.processor() or platform.machine()


def check_model() -> str:
    from pyjet.assets import default_model_path

    path = default_model_path()
    if not path.is_file():
        raise Missing(f"the embedded model {path}; reinstall pyjet")
    return f"{path.name}, {path.stat().st_size / 1e6:.1f} MB"


def check_gpu() -> str:
    fields = "name,driver_version,memory.total,compute_cap"
    listing = output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    if not listing:
        return "no NVIDIA GPU (nvidia-smi is absent or finds none)"
    lines = []
    for line in listing.splitlines():
        name, driver, memory, capability = (part.strip() for part in line.split(","))
        lines.append(f"{name}, {memory}, compute capability {capability}, driver {driver}")
    return "; ".join(lines)


def check_device() -> str:
    """What the server takes without --device, as its log says it."""
    from pyjet.server.device_choice import DeviceError, choose_device
    from pyjet.server.options import ServerOptions

    try:
        choice = choose_device(ServerOptions())
    except DeviceError as error:
        raise Missing(str(error)) from error
    return f"{choice.device} ({choice.reason})"


def check_nvcc() -> str:
    text = output_of("nvcc", "--version") or output_of("/usr/local/cuda/bin/nvcc", "--version")
    match = re.search(r"release ([\d.]+)", text or "")
    return f"nvcc {match.group(1)}" if match else "no nvcc (needed only to build a CUDA backend)"


def check_compiler() -> str:
    for command in ("c++", "g++", "clang++"):
        if text := output_of(command, "--version"):
            return text.splitlines()[0]
    return "no C++ compiler (needed only to build from source)"


CHECKS: dict[str, Callable[[], str]] = {
    "pyjet": check_version,
    "packages": check_packages,
    "library": check_library,
    "processor": check_processor,
    "model": check_model,
    "GPU": check_gpu,
    "device": check_device,
    "CUDA compiler": check_nvcc,
    "C++ compiler": check_compiler,
}
