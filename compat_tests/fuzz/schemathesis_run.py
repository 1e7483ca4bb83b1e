"""Schemathesis over the description of the endpoints, from an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from compat_tests.fuzz.openapi import document

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parents[1] / ".cache" / "fuzz"
SECONDS = 1800  # for the whole run


def run_schemathesis(url: str, seed: int, n_examples: int) -> list[str]:
    """Up to ``n_examples`` generated requests for each endpoint; what went wrong. Prints its summary.

    Raises RuntimeError when it cannot be installed.
    """
    program = _installed()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document(), file)
        file.flush()
        command = [
            str(program), "run", file.name, "--url", url, "--checks", "no_internal_error",
            "--phases", "examples,fuzzing", "--max-examples", str(n_examples), "--seed", str(seed),
        ]  # fmt: skip
        variables = {**os.environ, "SCHEMATHESIS_HOOKS": str(HERE / "schemathesis_hooks.py")}
        variables.pop("PYTHONPATH", None)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=SECONDS)
    print("\n".join(line for line in done.stdout.splitlines() if "generated" in line or "Tested" in line))
    return [] if done.returncode == 0 else [f"schemathesis: {done.stdout[-3000:]}{done.stderr[-1000:]}"]


def _installed() -> Path:
    """The program, installed first if it is not there in the wanted version."""
    wanted, stamp = (HERE / "requirements.txt"), ENVIRONMENT / ".installed"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(wanted)]
        for command in ([sys.executable, "-m", "venv", str(ENVIRONMENT)], pip):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        stamp.write_text(wanted.read_text())
    return ENVIRONMENT / "bin" / "schemathesis"
