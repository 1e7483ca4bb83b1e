"""What all of the README's tables have in common."""

from __future__ import annotations

from typing import Any

OTHER_RUNS = {  # figures that a file keeps of an earlier commit, by the key that names it
    "llama_cpp_commit": "llama.cpp's figures",
    "http_commit": "streaming clients",
}


def markdown(head: list[str], rows: list[list[str]], note: str) -> str:
    """A table with right-aligned number columns and a line below it."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{note}\n"


def run_note(record: dict[str, Any]) -> str:
    """Where and when a file's figures were measured."""
    others = "".join(f", {what} of {record[key]}" for key, what in OTHER_RUNS.items() if key in record)
    return f"{record['device']}; commit {record['commit']}{others}; {record['date']}."
