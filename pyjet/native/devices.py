"""Which devices the library can compute on."""

from __future__ import annotations

import ctypes as C
import json
from dataclasses import asdict, dataclass

from pyjet.native.config import DEVICES, Device, number_of
from pyjet.native.library import NativeError, check_status, load_library
from pyjet.native.probe import run_probe

_NAME_BYTES = 256


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
    """All GPUs, and the reason when there are none. The names are read by a process of its own."""
    count, reason = device_count("cuda")
    if count == 0:
        return [], reason
    return [Gpu(**entry) for entry in json.loads(run_probe("pyjet.native.devices", "print_gpus"))], ""


def print_gpus() -> None:
    """The probe's side of list_gpus: a JSON list on standard output."""
    print(json.dumps([asdict(examine(index)) for index in range(device_count("cuda")[0])]))


def examine(index: int) -> Gpu:
    try:
        return Gpu(index, device_name("cuda", index), "")
    except NativeError as error:
        return Gpu(index, "", error.message)
