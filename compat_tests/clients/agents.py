"""The coding agents, run without a terminal. What their model says is played; everything else is real."""

from __future__ import annotations

import json
from pathlib import Path

from compat_tests.clients.case import FILE, QUESTION, Case, Command, Place
from compat_tests.clients.play import Play, call_text

DONE = "I changed the greeting."
MODEL = "pyjet-tiny"
KEY = "none"


def aider(place: Place) -> Command:
    options = [
        "--model", f"openai/{MODEL}", "--edit-format", "diff", "--yes", "--no-git", "--no-check-update",
        "--no-show-model-warnings", "--analytics-disable", "--map-tokens", "0", "--message", QUESTION, FILE,
    ]  # fmt: skip
    # The prices of models are read from the installed package instead of the network.
    variables = {
        "OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    return Command([place.tools.python("aider"), "-m", "aider", *options], variables)


def aider_play(work: Path) -> Play:
    block = '<<<<<<< SEARCH\n    return "Hello, " + name\n=======\n    return "Howdy, " + name\n>>>>>>> REPLACE'
    return Play([f"{DONE}\n\n{FILE}\n```python\n{block}\n```\n"], aside=None)


def opencode(place: Place) -> Command:
    provider = {
        "npm": "@ai-sdk/openai-compatible",  # comes with OpenCode
        "options": {"baseURL": f"{place.url}/v1", "apiKey": KEY},
        "models": {MODEL: {}},
    }
    settings = {
        "autoupdate": False, "share": "disabled", "provider": {"pyjet": provider},
        "model": f"pyjet/{MODEL}", "small_model": f"pyjet/{MODEL}",
    }  # fmt: skip
    (place.work / "opencode.json").write_text(json.dumps(settings))
    off = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD")
    return Command(
        [place.tools.node_bin / "opencode", "run", QUESTION], {f"OPENCODE_DISABLE_{name}": "1" for name in off}
    )


def opencode_play(work: Path) -> Play:
    file = str(work / FILE)
    edit = call_text("edit", filePath=file, oldString="Hello", newString="Howdy")
    return Play([call_text("read", filePath=file), edit, DONE])


def read_and_edit(work: Path, read: str, edit: str) -> Play:
    """With the tools of these names, whose arguments Claude Code and Qwen Code have in common."""
    file = str(work / FILE)
    change = call_text(edit, file_path=file, old_string="Hello", new_string="Howdy")
    return Play([call_text(read, file_path=file), change, DONE])


def claude_code(place: Place) -> Command:
    variables = {
        "ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_AUTH_TOKEN": KEY, "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }  # fmt: skip
    options = ["--model", MODEL, "--permission-mode", "acceptEdits", "-p", QUESTION]
    return Command([place.tools.node_bin / "claude", *options], variables)


def claude_code_play(work: Path) -> Play:
    return read_and_edit(work, "Read", "Edit")


def codex(place: Place) -> Command:
    settings = (
        f'model = "{MODEL}"\nmodel_provider = "pyjet"\n\n[model_providers.pyjet]\nname = "pyjet"\n'
        f'base_url = "{place.url}/v1"\nwire_api = "responses"\n'
    )
    folder = place.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(settings)
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", QUESTION]
    return Command([place.tools.node_bin / "codex", "exec", *options])


def codex_play(work: Path) -> Play:
    return Play([call_text("exec_command", cmd=f"sed -i s/Hello/Howdy/ {FILE}"), DONE])


def qwen_code(place: Place) -> Command:
    variables = {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": MODEL}
    options = ["--auth-type", "openai", "--yolo", "-p", QUESTION]
    return Command([place.tools.node_bin / "qwen", *options], variables)


def qwen_code_play(work: Path) -> Play:
    return read_and_edit(work, "read_file", "edit")


def cline(place: Place) -> Command:
    program = place.tools.node_bin / "cline"
    log_in = f'"{program}" auth -p openai -k {KEY} -m {MODEL} -b {place.url}/v1'
    return Command(["sh", "-c", f'{log_in} && "{program}" -P openai -m {MODEL} "$0"', QUESTION])


def cline_play(work: Path) -> Play:
    return Play([call_text("editor", path=str(work / FILE), old_text="Hello", new_text="Howdy"), DONE])


AGENTS = [
    Case("aider", "aider", "aider-chat", "/v1/chat/completions", aider, aider_play),
    Case("OpenCode", "node", "opencode-ai", "/v1/chat/completions", opencode, opencode_play),
    Case("Qwen Code", "node", "@qwen-code/qwen-code", "/v1/chat/completions", qwen_code, qwen_code_play),
    Case("Cline", "node", "cline", "/v1/chat/completions", cline, cline_play),
    Case("Claude Code", "node", "@anthropic-ai/claude-code", "/v1/messages", claude_code, claude_code_play),
    Case("Codex", "node", "@openai/codex", "/v1/responses", codex, codex_play),
]
