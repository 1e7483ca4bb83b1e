"""--log-prompts-dir: prompts in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_engine import ScriptedEngine
from tests.server.scripted import make_client, post, said, stream

HI = [{"role": "user", "content": "Hi"}]
CHAT_PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"


def files(folder: Path) -> list[str]:
    """Contents by time."""
    return [path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())]


@pytest.mark.parametrize(("path", "body", "prompts"), [
    ("/v1/chat/completions", {"messages": HI}, [CHAT_PROMPT]),
    ("/v1/messages", {"messages": HI, "max_tokens": 5}, [CHAT_PROMPT]),
    ("/completion", {"prompt": "Once 你"}, ["Once 你"]),
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2}, ["a", "b"]),
])  # fmt: skip
def test_one_file_for_each_prompt(tmp_path: Path, path: str, body: dict[str, Any], prompts: list[str]) -> None:
    folder = tmp_path / "deep" / "prompts"
    client = make_client(ScriptedEngine(said("x")), log_prompts_dir=str(folder))
    post(client, path, body)
    assert files(folder) == prompts
    assert all(re.fullmatch(r"\d{12,}\.txt", file.name) for file in folder.iterdir())
    if path != "/v1/messages":
        stream(client, path, body)
        assert files(folder) == prompts * 2


def test_what_is_not_generated_is_not_logged(tmp_path: Path) -> None:
    client = make_client(ScriptedEngine(said("x")), log_prompts_dir=str(tmp_path))
    post(client, "/apply-template", {"messages": HI})
    post(client, "/tokenize", {"content": "a"})
    assert client.post("/completion", data=b"{}").status_code == 400
    assert files(tmp_path) == []


def test_a_directory_that_cannot_be_written_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    client = make_client(ScriptedEngine(said("x")), log_prompts_dir=str(blocked / "below"))
    post(client, "/completion", {"prompt": "a"})
    messages = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(messages) == 2 and "failed to create directory" in messages[0] and "not logged" in messages[1]
