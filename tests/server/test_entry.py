"""The program's main module: the engine's process imports it, too."""

from __future__ import annotations

import subprocess
import sys


def test_the_main_module_imports_nothing_of_the_http_side() -> None:
    code = "import sys, pyjet.server.__main__; print(sorted({'flask', 'pyjet.server.main'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
