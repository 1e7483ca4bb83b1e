"""``pyjet-server``, also as ``python -m pyjet.server``.

The engine's process imports the program's main module again: it must find nothing of the HTTP side here.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the server with the process's arguments; returns the exit code."""
    from pyjet.server.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
