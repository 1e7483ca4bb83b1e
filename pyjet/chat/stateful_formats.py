"""Chat formats in which the marks of a message depend on others, as Jinja sources."""

from __future__ import annotations

from collections.abc import Mapping

from pyjet.chat.turn_formats import literal, opening


def _llama2(system: tuple[str, str], *, again: str = "[INST] ", trims: bool = False) -> str:
    """``again`` begins all turns but the first; a system message is part of one."""
    content = "message.content | trim" if trims else "message.content"
    before, after = literal(system[0]), literal(system[1])
    return (
        "{{- '[INST] ' -}}{%- set turn = namespace(is_open=true) -%}"
        f"{{%- for message in messages -%}}{{%- set content = {content} -%}}"
        f"{{%- if not turn.is_open -%}}{{{{- {literal(again)} -}}}}{{%- set turn.is_open = true -%}}{{%- endif -%}}"
        f"{{%- if message.role == 'system' -%}}{{{{- {before} + content + {after} -}}}}"
        "{%- elif message.role == 'user' -%}{{- content + ' [/INST]' -}}"
        "{%- else -%}{{- content + '</s>' -}}{%- set turn.is_open = false -%}{%- endif -%}{%- endfor -%}"
    )


def _mistral(outer: str, inner: str, *, trims: bool = False) -> str:
    """``outer``: blank before [INST] and [/INST]; ``inner``: after [INST] and before an answer."""
    answer = "message.content | trim" if trims else "message.content"
    return (
        "{%- set turn = namespace(is_open=false) -%}{%- for message in messages -%}"
        f"{{%- if not turn.is_open -%}}{{{{- {literal(outer + '[INST]' + inner)} -}}}}"
        "{%- set turn.is_open = true -%}{%- endif -%}"
        "{%- if message.role == 'system' -%}{{- message.content + '\\n\\n' -}}"
        f"{{%- elif message.role == 'user' -%}}{{{{- message.content + {literal(outer + '[/INST]')} -}}}}"
        f"{{%- else -%}}{{{{- {literal(inner)} + ({answer}) + '</s>' -}}}}"
        "{%- set turn.is_open = false -%}{%- endif -%}{%- endfor -%}"
    )


_SYS = ("<<SYS>>\n", "\n<</SYS>>\n\n")

_GEMMA = (
    "{%- set system = namespace(text='') -%}{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}{%- set system.text = system.text + message.content | trim -%}"
    "{%- else -%}{%- set role = 'model' if message.role == 'assistant' else message.role -%}"
    "{{- '<start_of_turn>' + role + '\\n' -}}"
    "{%- if system.text and role != 'model' -%}{{- system.text + '\\n\\n' -}}{%- set system.text = '' -%}{%- endif -%}"
    "{{- message.content | trim + '<end_of_turn>\\n' -}}{%- endif -%}{%- endfor -%}"
) + opening("<start_of_turn>model\n")

_ORION = (
    "{%- set system = namespace(text='') -%}{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}{%- set system.text = system.text + message.content -%}"
    "{%- elif message.role == 'user' -%}{{- 'Human: ' -}}"
    "{%- if system.text -%}{{- system.text + '\\n\\n' -}}{%- set system.text = '' -%}{%- endif -%}"
    "{{- message.content + '\\n\\nAssistant: </s>' -}}"
    "{%- else -%}{{- message.content + '</s>' -}}{%- endif -%}{%- endfor -%}"
)

_MONARCH = (
    "{%- for message in messages -%}{%- if not loop.first -%}{{- '<s>' -}}{%- endif -%}"
    "{{- message.role + '\\n' + message.content + '</s>\\n' -}}{%- endfor -%}"
) + opening("<s>assistant\n")

_RWKV_WORLD = (
    "{%- set names = {'system': 'System: ', 'user': 'User: ', 'assistant': 'Assistant: '} -%}"
    "{%- for message in messages -%}{%- if message.role in names -%}"
    "{{- names[message.role] + message.content | trim + '\\n\\n' -}}{%- endif -%}"
    "{%- if message.role == 'user' and loop.last -%}{{- 'Assistant:' -}}{%- endif -%}{%- endfor -%}"
)

_GIGACHAT = (
    "{{- '<s>' -}}{%- for message in messages -%}"
    "{%- if message.role == 'system' and loop.first -%}{{- message.content + '<|message_sep|>' -}}"
    "{%- elif message.role == 'user' -%}{{- 'user<|role_sep|>' + message.content + '<|message_sep|>' -}}"
    "{{- 'available functions<|role_sep|>[]<|message_sep|>' -}}"
    "{%- elif message.role == 'assistant' -%}"
    "{{- 'assistant<|role_sep|>' + message.content + '<|message_sep|>' -}}{%- endif -%}{%- endfor -%}"
) + opening("assistant<|role_sep|>")

_BAILING2 = (
    "{%- if not messages or messages[0].role != 'system' -%}"
    "{{- '<role>SYSTEM</role>detailed thinking off<|role_end|>' -}}{%- endif -%}{%- for message in messages -%}"
    "{%- set role = 'HUMAN' if message.role == 'user' else message.role | upper -%}"
    "{{- '<role>' + role + '</role>' + message.content + '<|role_end|>' -}}{%- endfor -%}"
) + opening("<role>ASSISTANT</role>")

_HUNYUAN_DENSE = (
    "{%- for message in messages -%}{%- if message.role == 'system' and loop.first -%}"
    "{{- message.content + '<｜hy_place▁holder▁no▁3｜>' -}}"
    "{%- elif message.role == 'assistant' -%}"
    "{{- '<｜hy_Assistant｜>' + message.content + '<｜hy_place▁holder▁no▁2｜>' -}}"
    "{%- elif message.role == 'user' -%}{{- '<｜hy_User｜>' + message.content + '<｜hy_Assistant｜>' -}}"
    "{%- endif -%}{%- endfor -%}"
)

_HUNYUAN_VL = (
    "{{- '<｜hy_begin▁of▁sentence｜>' -}}{%- for message in messages -%}"
    "{%- if message.role == 'system' and loop.first -%}{{- message.content + '<｜hy_place▁holder▁no▁3｜>' -}}"
    "{%- elif message.role == 'user' -%}{{- message.content + '<｜hy_User｜>' -}}"
    "{%- elif message.role == 'assistant' -%}{{- message.content + '<｜hy_Assistant｜>' -}}"
    "{%- endif -%}{%- endfor -%}"
)

_PANGU_EMBEDDED = (
    "{%- set names = {'system': '系统', 'user': '用户', 'assistant': '助手', 'tool': '工具', 'function': '方法'} -%}"
    "{%- for message in messages -%}"
    "{%- if loop.first and message.role != 'system' -%}{{- '[unused9]系统：[unused10]' -}}{%- endif -%}"
    "{%- if message.role in names -%}"
    "{{- '[unused9]' + names[message.role] + '：' + message.content + '[unused10]' -}}{%- endif -%}{%- endfor -%}"
) + opening("[unused9]助手：")

STATEFUL_FORMATS: Mapping[str, str] = {
    "llama2": _llama2(("", "\n")),
    "llama2-sys": _llama2(_SYS),
    "llama2-sys-bos": _llama2(_SYS, again="<s>[INST] "),
    "llama2-sys-strip": _llama2(_SYS, trims=True),
    "mistral-v1": _mistral(" ", " "),
    "mistral-v3": _mistral("", " ", trims=True),
    "mistral-v3-tekken": _mistral("", ""),
    "gemma": _GEMMA,
    "orion": _ORION,
    "monarch": _MONARCH,
    "rwkv-world": _RWKV_WORLD,
    "gigachat": _GIGACHAT,
    "bailing2": _BAILING2,
    "hunyuan-dense": _HUNYUAN_DENSE,
    "hunyuan-vl": _HUNYUAN_VL,
    "pangu-embedded": _PANGU_EMBEDDED,
}
