"""Which backend runs the model, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pyjet.native import Gpu, NativeError, list_gpus
from pyjet.native.config import ERR_DEVICE
from pyjet.server.options import ServerOptions

_NAME = re.compile(r"cuda(\d*)", re.IGNORECASE)


class DeviceError(Exception):
    """The wanted device cannot be used; the text says what would work."""


@dataclass(frozen=True)
class DeviceChoice:
    """``reason`` is for the log: the GPU's name, or why the CPU computes."""

    device: Literal["cpu", "cuda"]
    index: int
    reason: str


def choose_device(options: ServerOptions) -> DeviceChoice:
    """The backend for these options. Raises DeviceError for a device that this build or machine does not have."""
    wanted = _wanted(options)
    if wanted in ("cpu", "none"):
        return DeviceChoice("cpu", 0, f"asked for with --device {wanted}")
    if is_automatic(options):
        return _automatic(options)
    if "," in wanted:
        raise DeviceError(f'--device "{wanted}": the whole model is on one device; name one')
    match = _NAME.fullmatch(wanted)
    if match is None:
        raise DeviceError(f'unknown device "{wanted}"; use cpu, cuda, auto or a name of --list-devices')
    try:
        return _gpu(int(match[1] or options.main_gpu))
    except NativeError as error:
        raise DeviceError(f'--device "{wanted}": {error.message} (--device cpu always works)') from None


def _wanted(options: ServerOptions) -> str:
    return (options.device or "auto").strip()


def is_automatic(options: ServerOptions) -> bool:
    """Whether the CPU may take over when the GPU cannot run the model."""
    return _wanted(options) == "auto"


def _automatic(options: ServerOptions) -> DeviceChoice:
    if options.gpu_layers == "0":
        return DeviceChoice("cpu", 0, "asked for with --gpu-layers 0")
    try:
        return _gpu(options.main_gpu)
    except NativeError as error:
        if error.kind == "library":
            raise DeviceError(error.message) from None
        return DeviceChoice("cpu", 0, error.message)


def _gpu(index: int) -> DeviceChoice:
    """The GPU with this index. Raises NativeError with the reason when it cannot be used."""
    gpus, reason = list_gpus()
    if not gpus:
        raise NativeError(ERR_DEVICE, reason)
    if not 0 <= index < len(gpus):
        raise NativeError(ERR_DEVICE, f"GPU {index} does not exist; there are: {_names(gpus)}")
    if gpus[index].problem:
        raise NativeError(ERR_DEVICE, gpus[index].problem)
    return DeviceChoice("cuda", index, f"{gpus[index].name}, CUDA{index} of {len(gpus)}")


def _names(gpus: list[Gpu]) -> str:
    return ", ".join(f"CUDA{gpu.index} ({gpu.name or gpu.problem})" for gpu in gpus)


def device_list() -> str:
    """Text of ``--list-devices``. Raises DeviceError when the library cannot be asked."""
    try:
        gpus, reason = list_gpus()
    except NativeError as error:
        raise DeviceError(error.message) from None
    lines = [f"  CUDA{gpu.index}: {gpu.name or f'cannot be used: {gpu.problem}'}" for gpu in gpus]
    return "\n".join(["Available devices:", *(lines or ["  (none)", f"No GPU: {reason}"])]) + "\n"
