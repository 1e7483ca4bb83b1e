"""Print what the named extras of the installed package need, one requirement a line: extras.py test lint"""

from __future__ import annotations

import importlib.metadata
import re
import sys


def requirements(extra: str) -> list[str]:
    """Requirements of one extra, without those that every installation has."""
    found = []
    for line in importlib.metadata.requires("pyjet") or []:
        requirement, _, marker = line.partition(";")
        if re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", marker):
            found.append(requirement.strip())
    if not found:
        raise SystemExit(f"pyjet has no extra named {extra!r}")
    return found


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("\n".join(requirements(name)))
