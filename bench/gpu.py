"""What the driver and two small kernels say about the GPU, and its name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from pyjet.native import device_name, list_gpus

MIB = 1 << 20


def used_bytes(index: int = 0) -> int | None:
    """GPU memory in use by all processes; None where the driver's tool is missing."""
    command = ["nvidia-smi", f"--id={index}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return int(done.stdout.strip()) * MIB if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def ceilings(program: Path | None) -> dict[str, float]:
    """Figures of bench/native/ceilings.cu, compiled to `program`: GB/s read, int8 tera-operations a second."""
    if program is None:
        return {}
    done = subprocess.run([str(program.resolve())], capture_output=True, text=True, timeout=120, check=True)
    return {key: float(value) for key, value in json.loads(done.stdout).items()}


def device_label(device: str) -> str:
    """Name of what runs a benchmark: the first GPU, without keeping its context open here, or the processor."""
    gpus = list_gpus()[0] if device == "cuda" else []
    return gpus[0].name if gpus else device_name("cpu", 0)
