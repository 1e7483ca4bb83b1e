"""The families of tests/chat/test_families.py with the templates that the models bring along."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjet.chat import ChatOptions, ChatTemplate, prepare_chat
from tests.chat import test_families as families
from tests.support.peer import source_or_skip

FILES = {
    "qwen3.5": "Qwen3.5-4B",
    "qwen3": "Qwen-Qwen3-0.6B",
    "qwq": "Qwen-QwQ-32B",
    "qwen3-coder": "Qwen3-Coder",
    "qwen2.5": "Qwen-Qwen2.5-7B-Instruct",
}
CALL = {"type": "function", "id": "call12345", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is in a.py?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call12345", "content": "x = 1"},
]
# Templates of dense models that show tools and their results, whether or not their calls are understood here.
WITH_TOOLS = (
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct",
    "mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "ibm-granite-granite-3.3-2B-Instruct", "google-gemma-4-31B-it",
)  # fmt: skip
WITHOUT_TOOLS = ("microsoft-Phi-3.5-mini-instruct", "google-gemma-2-2b-it", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B")


@pytest.fixture(scope="module")
def folder() -> Path:
    return source_or_skip() / "models/templates"


@pytest.fixture
def real(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for family, name in FILES.items():
        monkeypatch.setitem(families.SOURCES, family, (folder / f"{name}.jinja").read_text("utf-8"))


def of(folder: Path, name: str) -> ChatTemplate:
    return ChatTemplate((folder / f"{name}.jinja").read_text("utf-8"), bos_token="<s>", eos_token="</s>")


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("family", "text", "reasoning", "content", "calls"), families.ANSWERS)
def test_answers(family: str, text: str, reasoning: str, content: str, calls: int) -> None:
    assert families.answer(family, text) == (reasoning, content, [families.CALL] * calls)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("family", FILES)
def test_prompts_with_tools(family: str) -> None:
    template = families.template(family)
    assert template.call_format == ("qwen_xml" if family in ("qwen3.5", "qwen3-coder") else "hermes_json")
    prompt = prepare_chat({"messages": TALK, "tools": families.TOOLS}, template, ChatOptions()).prompt
    assert prompt.startswith("<|im_start|>system\n") and "Be brief." in prompt and "read_file" in prompt
    assert "<tool_response>\nx = 1\n</tool_response>" in prompt
    assert prompt.endswith("<|im_start|>assistant\n" + "<think>\n" * (family in ("qwen3.5", "qwq")))


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_tools_of_other_families(folder: Path, name: str) -> None:
    """Tools, calls and results reach the prompt; who writes calls in a form that nobody knows here is told so."""
    template = of(folder, name)
    chat = prepare_chat({"messages": TALK, "tools": families.TOOLS}, template, ChatOptions())
    assert "read_file" in chat.prompt and "x = 1" in chat.prompt
    assert chat.parse_tools == ("Hermes" in name) and chat.has_unknown_calls == ("Hermes" not in name)


@pytest.mark.parametrize("name", WITHOUT_TOOLS)
def test_templates_that_know_no_tools(folder: Path, name: str) -> None:
    template = of(folder, name)
    chat = prepare_chat({"messages": [families.USER], "tools": families.TOOLS}, template, ChatOptions(add_bos=True))
    assert "Hi" in chat.prompt and "read_file" not in chat.prompt and not chat.prompt.startswith("<s>")
    assert chat.has_unknown_calls and not chat.parse_tools
