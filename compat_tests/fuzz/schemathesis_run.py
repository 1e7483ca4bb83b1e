"""Schemathesis over the description of the endpoints, from an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

from compat_tests.environments import install_python
from compat_tests.fuzz.openapi import document

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE.parents[1] / ".cache" / "fuzz"
SECONDS = 1800  # for the whole run


def install_schemathesis() -> Path:
    """The program, installed first if it is not there in the wanted version. Raises InstallError."""
    install_python(ENVIRONMENT, HERE / "requirements.txt")
    return ENVIRONMENT / "bin" / "schemathesis"


def run_schemathesis(program: Path, url: str, seed: int, n_examples: int) -> list[str]:
    """Up to ``n_examples`` generated requests for each endpoint; what went wrong. Prints its summary."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document(), file)
        file.flush()
        command = [
            str(program), "run", file.name, "--url", url, "--checks", "no_internal_error",
            "--phases", "examples,fuzzing", "--max-examples", str(n_examples), "--seed", str(seed),
        ]  # fmt: skip
        variables = {**os.environ, "SCHEMATHESIS_HOOKS": str(HERE / "schemathesis_hooks.py")}
        variables.pop("PYTHONPATH", None)
        try:
            done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return [f"schemathesis did not end within {SECONDS} s"]
    print("\n".join(line for line in done.stdout.splitlines() if "generated" in line or "Tested" in line))
    return [] if done.returncode == 0 else [f"schemathesis: {done.stdout[-3000:]}{done.stderr[-1000:]}"]
