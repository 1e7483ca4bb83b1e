"""Which backend runs the model, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pyjet.native.library import NativeError
from pyjet.native.ops import build_info
from pyjet.server.options import ServerOptions

_NAME = re.compile(r"cuda(\d*)", re.IGNORECASE)


class DeviceError(Exception):
    """The wanted device cannot be used; the text says what would work."""


@dataclass(frozen=True)
class DeviceChoice:
    """``reason`` is for the log."""

    device: Literal["cpu", "cuda"]
    index: int
    reason: str


def choose_device(options: ServerOptions) -> DeviceChoice:
    """The backend for these options. Raises DeviceError for a device that this build or machine does not have."""
    wanted = (options.device or "auto").strip()
    if wanted in ("cpu", "none"):
        return DeviceChoice("cpu", 0, f"asked for with --device {wanted}")
    built_with_cuda = _cuda_architectures() is not None
    if wanted == "auto":
        if options.gpu_layers == "0":
            return DeviceChoice("cpu", 0, "asked for with --gpu-layers 0")
        if built_with_cuda:
            return DeviceChoice("cuda", options.main_gpu, "this build has CUDA")
        return DeviceChoice("cpu", 0, "this build has no CUDA backend")
    if "," in wanted:
        raise DeviceError(f'--device "{wanted}": the whole model is on one device; name one')
    match = _NAME.fullmatch(wanted)
    if match is None:
        raise DeviceError(f'unknown device "{wanted}"; use cpu, cuda, auto or a name of --list-devices')
    if not built_with_cuda:
        raise DeviceError(f'--device "{wanted}": this build has no CUDA backend; use --device cpu')
    return DeviceChoice("cuda", int(match[1] or options.main_gpu), f"asked for with --device {wanted}")


def device_list() -> str:
    """Text of ``--list-devices``."""
    lines = ["Available devices:"]
    architectures = _cuda_architectures()
    lines.append(f"  CUDA0: NVIDIA GPU (built for {architectures})" if architectures else "  (none)")
    return "\n".join(lines) + "\n"


def _cuda_architectures() -> str | None:
    """What the library was built for, from its own description; None without CUDA."""
    try:
        info = build_info()
    except NativeError as error:
        raise DeviceError(error.message) from None
    found = re.search(r"cuda: ([^;]*)", info)
    text = found[1].strip() if found else "none"
    return None if text == "none" else text
