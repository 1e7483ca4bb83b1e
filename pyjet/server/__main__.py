"""``python -m pyjet.server`` is ``pyjet-server``."""

from __future__ import annotations

import sys

from pyjet.server.main import main

if __name__ == "__main__":
    sys.exit(main())
