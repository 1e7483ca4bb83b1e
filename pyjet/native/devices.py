"""Which devices the library can compute on."""

from __future__ import annotations

import ctypes as C
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

from pyjet.native.config import DEVICES, ERR_DEVICE, Device, number_of
from pyjet.native.library import NativeError, check_status, load_library

_NAME_BYTES = 256
_PROBE_SECONDS = 120  # a cold NVIDIA driver takes seconds per GPU to start


@dataclass(frozen=True)
class Gpu:
    """One GPU that this process sees: its product name, or why it cannot be used."""

    index: int
    name: str
    problem: str


def device_count(device: Device) -> tuple[int, str]:
    """Number of devices of a kind, and for 0 the reason. NativeError for a kind that is unknown."""
    lib = load_library()
    count: int = lib.pj_device_count(number_of("device", device, DEVICES))
    reason = lib.pj_last_error().decode("utf-8", "replace") if count == 0 else ""
    return count, reason


def device_name(device: Device, index: int) -> str:
    """Product name of a device that can be used; otherwise a NativeError says what is in the way.

    For a GPU this opens a CUDA context, which holds some hundred MB of the card until the process ends.
    """
    lib = load_library()
    name = C.create_string_buffer(_NAME_BYTES)
    check_status(lib, lib.pj_device_name(number_of("device", device, DEVICES), index, name, _NAME_BYTES))
    return name.value.decode("utf-8", "replace")


def list_gpus() -> tuple[list[Gpu], str]:
    """All GPUs, and the reason when there are none.

    The names are read by a process of its own: a server that asks must not keep a context on the card where
    another process computes.
    """
    count, reason = device_count("cuda")
    if count == 0:
        return [], reason
    command = [sys.executable, "-c", "from pyjet.native.devices import print_gpus; print_gpus()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeError(ERR_DEVICE, f"the GPUs could not be examined: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise NativeError(ERR_DEVICE, f"the GPUs could not be examined: {last}")
    return [Gpu(**entry) for entry in json.loads(done.stdout)], ""


def print_gpus() -> None:
    """The probe's side of list_gpus: a JSON list on standard output."""
    print(json.dumps([asdict(examine(index)) for index in range(device_count("cuda")[0])]))


def examine(index: int) -> Gpu:
    try:
        return Gpu(index, device_name("cuda", index), "")
    except NativeError as error:
        return Gpu(index, "", error.message)
