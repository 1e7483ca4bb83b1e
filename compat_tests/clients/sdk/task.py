"""The task of the SDKs: change a file with a tool that the model calls. Runs in the clients' own environment.

Every script is called with the server's URL and "whole" or "stream", in the folder of the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

QUESTION = 'In greeting.py change "Hello" to "Howdy".'
SYSTEM = "You are a coding agent."
NAME, DESCRIPTION = "edit_file", "Edit a file by replacing exact text."
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The path of the file"},
        "old_text": {"type": "string", "description": "Text to find"},
        "new_text": {"type": "string", "description": "Replacement text"},
    },
    "required": ["path", "old_text", "new_text"],
}
MAX_TURNS = 4


def edit_file(path: str, old_text: str, new_text: str) -> str:
    """Edit a file by replacing exact text."""
    file = Path(path)
    text = file.read_text()
    if text.count(old_text) != 1:
        return f"error: {old_text!r} is not in the file once"
    file.write_text(text.replace(old_text, new_text))
    return f"The file {path} was edited."


def run(task: Callable[[str, bool], str]) -> None:
    """Do the task at the URL of the command line; prints the model's last words."""
    last_words = task(sys.argv[1], sys.argv[2] == "stream")
    if not last_words.strip():
        sys.exit("the model's last answer is empty")
    print(last_words)
