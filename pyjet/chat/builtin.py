"""Chat templates that exist by name: as Jinja source, and as the plain formats that `--no-jinja` uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)

_LLAMA3 = (
    "{%- for message in messages -%}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}"
)

_COMMAND_R = (
    "{%- set tokens = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} -%}"
    "{%- for message in messages -%}{%- if message.role in tokens -%}"
    "{{- '<|START_OF_TURN_TOKEN|><|' + tokens[message.role] + '_TOKEN|>' -}}"
    "{{- message.content | trim + '<|END_OF_TURN_TOKEN|>' -}}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' -}}{%- endif -%}"
)

BUILTIN_TEMPLATES: Mapping[str, str] = {"chatml": _CHATML, "llama3": _LLAMA3, "command-r": _COMMAND_R}

# names llama-server knows and pyjet does not
_OTHER_NAMES = frozenset([
    "bailing", "bailing-think", "bailing2", "chatglm3", "chatglm4", "deepseek", "deepseek-ocr", "deepseek2",
    "deepseek3", "exaone-moe", "exaone3", "exaone4", "falcon3", "gemma", "gigachat", "glmedge", "gpt-oss",
    "granite", "granite-4.0", "granite-4.1", "grok-2", "hunyuan-dense", "hunyuan-moe", "hunyuan-vl", "kimi-k2",
    "llama2", "llama2-sys", "llama2-sys-bos", "llama2-sys-strip", "llama4", "megrez", "minicpm", "mistral-v1",
    "mistral-v3", "mistral-v3-tekken", "mistral-v7", "mistral-v7-tekken", "monarch", "openchat", "orion",
    "pangu-embedded", "phi3", "phi4", "rwkv-world", "seed_oss", "smolvlm", "solar-open", "vicuna", "vicuna-orca",
    "yandex", "zephyr",
])


def builtin_template(name: str) -> str | None:
    """Jinja source of a template pyjet has by name (`chatml`, `llama3`, `command-r`); None for any other text."""
    return BUILTIN_TEMPLATES.get(name)


def resolve_template(text: str, *, jinja: bool = True) -> str:
    """Source for a `--chat-template` value: a built-in name or, with `jinja`, the source itself.

    Raises ValueError for a name that only llama-server has, and for a source no plain format fits without `jinja`.
    """
    known = builtin_template(text)
    if known is not None:
        return known
    if text in _OTHER_NAMES:
        raise ValueError(f"the built-in template {text!r} is not available; give the Jinja source "
                         "with --chat-template-file")
    if not jinja and plain_format(text) is None:
        raise ValueError("the supplied chat template is not supported without jinja: "
                         f"use --jinja or one of {', '.join(BUILTIN_TEMPLATES)}")
    return text


def plain_format(source: str) -> str | None:
    """The built-in format whose markers a template source shows; None when it is some other format."""
    if "<|im_start|>" in source:
        return "chatml"
    if "<|start_header_id|>" in source and "<|end_header_id|>" in source:
        return "llama3"
    if "<|START_OF_TURN_TOKEN|>" in source and ("<|USER_TOKEN|>" in source or "_TOKEN|>" in source):
        return "command-r"
    return None


def render_plain(format_name: str, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
    """Prompt of a built-in format without any template engine; contents are plain strings."""
    text = "".join(_PLAIN_TURNS[format_name](message["role"], message["content"]) for message in messages)
    return text + (_PLAIN_OPENINGS[format_name] if add_generation_prompt else "")


def _command_r_turn(role: str, content: str) -> str:
    token = {"system": "SYSTEM", "user": "USER", "assistant": "CHATBOT"}.get(role)
    if token is None:
        return ""
    return f"<|START_OF_TURN_TOKEN|><|{token}_TOKEN|>{content.strip()}<|END_OF_TURN_TOKEN|>"


_PLAIN_TURNS: dict[str, Callable[[str, str], str]] = {
    "chatml": lambda role, content: f"<|im_start|>{role}\n{content}<|im_end|>\n",
    "llama3": lambda role, content: f"<|start_header_id|>{role}<|end_header_id|>\n\n{content.strip()}<|eot_id|>",
    "command-r": _command_r_turn,
}
_PLAIN_OPENINGS: dict[str, Any] = {
    "chatml": "<|im_start|>assistant\n",
    "llama3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "command-r": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
}
