"""What the script of bench.conversation says: system prompt, tools, users and tools' answers. Same seed, same text."""

from __future__ import annotations

import random
from typing import Any

from bench.load_prompts import WORDS

N_FILES = 110  # of the system prompt: with the tools about 3,000 tokens of the embedded model's vocabulary

RULES = """
You are a coding agent. You work with other agents in one repository and answer in few words.
Read a file before you change it. Keep changes small. Do not touch files that the task does not name.
Run the tests after every change and report what failed, not what passed.
Prefer the search tools to shell commands. Never delete what you did not create.
When a tool fails, say why and try once more in another way, then ask.
""".strip()

# name, what it does, {parameter: what it is}; all parameters are required strings
TOOLS: list[tuple[str, str, dict[str, str]]] = [
    ("read_file", "Read a text file", {"path": "Path of the file"}),
    ("write_file", "Write text to a file, creating it if needed",
     {"path": "Path of the file", "content": "What to write"}),
    ("edit_file", "Replace text in a file", {"path": "Path of the file", "old": "Text to replace", "new": "New text"}),
    ("list_dir", "List the files of a directory", {"path": "Path of the directory"}),
    ("grep", "Search files for a regular expression", {"pattern": "The expression", "path": "Where to search"}),
    ("glob", "Find files whose names match a pattern", {"pattern": "The pattern, such as **/*.py"}),
    ("run_command", "Run a shell command and return its output", {"command": "The command line"}),
    ("git_log", "Show the newest commits that touch a path", {"path": "Path of a file or directory"}),
    ("web_fetch", "Fetch a page as text", {"url": "Address of the page"}),
]  # fmt: skip

QUESTIONS = [
    "Run this command: ls -la {folder}",
    "Please read the file {folder}/{name}.py",
    "Search for \"{name}\" in {folder}. (use grep)",
    "Which files are in {folder}/{name}?",
    "Read {folder}/{name}.md and tell me what it says.",
    "Run 'pytest -q {folder}/test_{name}.py'.",
]


def tools(seed: int) -> list[dict[str, Any]]:
    """The tools as OpenAI functions. The first text of every prompt holds the seed, so that no run knows another's."""
    found = []
    for name, description, parameters in TOOLS:
        properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(parameters)}
        function = {"name": name, "description": f"{description} of workspace {seed}", "parameters": schema}
        found.append({"type": "function", "function": function})
    return found


def system_prompt(seed: int) -> str:
    """Rules and the files of the repository."""
    rng = random.Random(f"system {seed}")
    files = (f"- {_folder(rng)}/{rng.choice(WORDS)}.py: {_words(rng, 6)}" for _ in range(N_FILES))
    return f"{RULES}\n\nThe repository:\n" + "\n".join(files)


def question(seed: int, agent: int, turn: str) -> str:
    """What a user asks for; a tool can do it."""
    rng = random.Random(f"question {seed} {agent} {turn}")
    return rng.choice(QUESTIONS).format(folder=_folder(rng), name=rng.choice(WORDS).lower())


def tool_response(seed: int, agent: int, turn: str) -> str:
    """Some output of 50 to 300 tokens."""
    rng = random.Random(f"tool {seed} {agent} {turn}")
    n_lines = rng.randrange(4, 22)
    return "\n".join(f"{_folder(rng)}/{rng.choice(WORDS)}.py:{rng.randrange(1, 900)}: {_words(rng, 4)}"
                     for _ in range(n_lines))  # fmt: skip


def summary(seed: int, agent: int) -> str:
    """What stands for a conversation after its compaction."""
    rng = random.Random(f"summary {seed} {agent}")
    done = "\n".join(f"- {_words(rng, 9)}" for _ in range(6))
    return f"Summary of the work so far:\n{done}\n\nGo on: {question(seed, agent, 'summary')}"


def _folder(rng: random.Random) -> str:
    return rng.choice(("src", "lib", "tests", "docs")) + "/" + rng.choice(WORDS).lower()


def _words(rng: random.Random, n: int) -> str:
    return " ".join(rng.choice(WORDS).lower() for _ in range(n))
