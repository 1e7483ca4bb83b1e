"""Questions to a GPU, answered by a process of its own.

Opening a GPU creates a CUDA context, which holds some hundred MB of the card until its process ends: a server that
only asks must not keep one where another process computes.
"""

from __future__ import annotations

import os
import subprocess
import sys

from pyjet.native.config import ERR_DEVICE
from pyjet.native.library import NativeError

_SECONDS = 120  # a cold NVIDIA driver takes seconds per GPU to start


def run_probe(module: str, function: str, request: str = "") -> str:
    """What ``module.function()`` prints, given ``request`` on standard input. NativeError when the process fails."""
    command = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        done = subprocess.run(
            command, env=environment, input=request, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeError(ERR_DEVICE, f"the GPUs could not be examined: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise NativeError(ERR_DEVICE, f"the GPUs could not be examined: {last}")
    return done.stdout
