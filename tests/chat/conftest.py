"""The embedded model's Qwen3.5 template, and other templates of the same family written small."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyjet.assets import default_model_path
from pyjet.chat import ChatTemplate
from pyjet.model.reader import load_model

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def qwen_template() -> ChatTemplate:
    source = load_model(default_model_path()).metadata["tokenizer.chat_template"]
    return ChatTemplate(source, bos_token="", eos_token="<|im_end|>")


@pytest.fixture(scope="session")
def hermes_template() -> ChatTemplate:
    return ChatTemplate(
        "{%- if tools %}{{- '<|im_start|>system\\n<tools>' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
        "{{- '</tools> answer with <tool_call>\\n{\"name\": …}\\n</tool_call><|im_end|>\\n' }}{%- endif %}"
        "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content }}"
        "{%- for call in message.tool_calls or [] %}"
        "{{- '<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}"
        "{{- call.function.arguments | tojson + '}\\n</tool_call>' }}{%- endfor %}"
        "{{- '<|im_end|>\\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
        "{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
    )
