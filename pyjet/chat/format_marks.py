"""Which built-in format a template's source is written for, by the marks in it, as llama-server guesses it."""

from __future__ import annotations

from collections.abc import Callable

Has = Callable[[str], bool]


def guess_format(source: str) -> str | None:
    """A built-in name; None for a template of some other format."""

    def has(mark: str) -> bool:
        return mark in source

    if has("<|im_start|>"):
        return "phi4" if has("<|im_sep|>") else "smolvlm" if has("<end_of_utterance>") else "chatml"
    if source.startswith("mistral") or has("[INST]"):
        return _with_inst(has)
    for name, all_of in _MARKS:
        if all(has(mark) for mark in all_of):
            return name
    return None


def _with_inst(has: Has) -> str:
    if has("[SYSTEM_PROMPT]"):
        return "mistral-v7"
    if has("' [INST] ' + system_message") or has("[AVAILABLE_TOOLS]"):
        return "mistral-v1" if has(" [INST]") else "mistral-v3-tekken" if has('"[INST]"') else "mistral-v3"
    if has("content.strip()"):
        return "llama2-sys-strip"
    if has("bos_token + '[INST]"):
        return "llama2-sys-bos"
    return "llama2-sys" if has("<<SYS>>") else "llama2"


_GIGACHAT = "message['role'] + additional_special_tokens[0] + message['content'] + additional_special_tokens[1]"

#: (name, marks that its templates have), the first one that fits
_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("phi3", ("<|assistant|>", "<|end|>")),
    ("chatglm4", ("[gMASK]<sop>",)),
    ("exaone-moe", ("<|assistant|>", "<|user|>", "<|tool_declare|>")),
    ("falcon3", ("<|assistant|>", "<|user|>", "</s>")),
    ("glmedge", ("<|assistant|>", "<|user|>")),
    ("glmedge", ("<|{{ item['role'] }}|>", "<|begin_of_image|>")),
    ("zephyr", ("<|user|>", "<|endoftext|>")),
    ("monarch", ("bos_token + message['role']",)),
    ("gemma", ("<start_of_turn>",)),
    ("orion", ("'\\n\\nAssistant: ' + eos_token",)),
    ("openchat", ("GPT4 Correct ",)),
    ("vicuna-orca", ("USER: ", "ASSISTANT: ", "SYSTEM: ")),
    ("vicuna", ("USER: ", "ASSISTANT: ")),
    ("deepseek", ("### Instruction:", "<|EOT|>")),
    ("command-r", ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>")),
    ("llama3", ("<|start_header_id|>", "<|end_header_id|>")),
    ("chatglm3", ("[gMASK]sop",)),
    ("minicpm", ("<用户>",)),
    ("deepseek2", ("'Assistant: ' + message['content'] + eos_token",)),
    ("deepseek3", ("<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>")),
    ("exaone4", ("[|system|]", "[|assistant|]", "[|endofturn|]", "[|tool|]")),
    ("exaone3", ("[|system|]", "[|assistant|]", "[|endofturn|]")),
    ("rwkv-world", ("rwkv-world",)),
    ("rwkv-world", ("{{- 'User: ' + message['content']|trim + '\\n\\n' -}}",)),
    ("granite-4.0", ("<|start_of_role|>", "<tool_call>", "g4_default_system_message")),
    ("granite-4.0", ("<|start_of_role|>", "<tools>", "g4_default_system_message")),
    ("granite-4.1", ("<|start_of_role|>", "<tool_call>")),
    ("granite-4.1", ("<|start_of_role|>", "<tools>")),
    ("granite", ("<|start_of_role|>",)),
    ("gigachat", (_GIGACHAT,)),
    ("megrez", ("<|role_start|>",)),
    ("yandex", (" Ассистент:",)),
    ("bailing", ("<role>ASSISTANT</role>", "'HUMAN'")),
    ("bailing-think", ("<role>ASSISTANT</role>", '"HUMAN"', "<think>")),
    ("bailing2", ("<role>ASSISTANT</role>", "<role>HUMAN</role>", "<|role_end|>")),
    ("llama4", ("<|header_start|>", "<|header_end|>")),
    ("hunyuan-moe", ("<|extra_0|>", "<|extra_4|>")),
    ("gpt-oss", ("<|start|>", "<|channel|>")),
    ("hunyuan-vl", ("<｜hy_Assistant｜>", "<｜hy_begin▁of▁sentence｜>")),
    ("hunyuan-dense", ("<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁3｜>")),
    ("kimi-k2", ("<|im_assistant|>assistant<|im_middle|>",)),
    ("seed_oss", ("<seed:bos>",)),
    ("grok-2", ("'Assistant: '  + message['content'] + '<|separator|>",)),
    ("pangu-embedded", ("[unused9]系统：[unused10]",)),
    ("solar-open", ("<|begin|>", "<|end|>", "<|content|>")),
)  # fmt: skip
