"""What all of the README's tables have in common."""

from __future__ import annotations

from typing import Any


def markdown(head: list[str], rows: list[list[str]], note: str) -> str:
    """A table with right-aligned number columns and a line below it."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{note}\n"


def run_note(record: dict[str, Any]) -> str:
    """Where and when a file's figures were measured."""
    return f"{record['device']}; commit {record['commit']}; {record['date']}."
