"""Chat formats in which every message stands between two marks, as data, and their Jinja sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ALL = frozenset(["system", "user", "assistant", "tool", ""])
Marks = tuple[str, str]  # before and after a content


@dataclass(frozen=True)
class TurnFormat:
    """``roles``: their marks; ``others``: of all other roles, with ROLE for the name, None leaves them out.

    ``opening`` begins an answer. Contents of the roles in ``trims`` lose the blanks around them, those of others when
    ALL do.
    """

    roles: Mapping[str, Marks] = field(default_factory=dict)
    others: Marks | None = None
    opening: str = ""
    begin: str = ""
    trims: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """Jinja."""
        branches = [
            (f"message.role == {literal(role)}", self._turn(literal(before), literal(after), trims=role in self.trims))
            for role, (before, after) in self.roles.items()
        ]
        if self.others is not None:
            before, after = (f"{literal(mark)} | replace('ROLE', message.role)" for mark in self.others)
            branches.append(("true", self._turn(f"({before})", f"({after})", trims="" in self.trims)))
        keyword, body = "if", ""
        for condition, turn in branches:
            body += f"{{%- {keyword} {condition} -%}}{turn}"
            keyword = "elif"
        begin = f"{{{{- {literal(self.begin)} -}}}}" if self.begin else ""
        loop = f"{{%- for message in messages -%}}{body}{{%- endif -%}}{{%- endfor -%}}"
        return begin + loop + opening(self.opening)

    def _turn(self, before: str, after: str, *, trims: bool) -> str:
        content = "message.content | trim" if trims else "message.content"
        return f"{{{{- {before} + ({content}) + {after} -}}}}"


def literal(text: str) -> str:
    """A Jinja string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def opening(text: str) -> str:
    """The end of a template that begins an answer with ``text``."""
    return f"{{%- if add_generation_prompt -%}}{{{{- {literal(text)} -}}}}{{%- endif -%}}" if text else ""


def _each(before: str, after: str, begins: str, *, trims: frozenset[str] = frozenset(), begin: str = "") -> TurnFormat:
    """The same marks for all roles, with ROLE for the name; ``begins`` an answer."""
    return TurnFormat(others=(before, after), opening=begins, trims=trims, begin=begin)


def _three(
    system: Marks, user: Marks, assistant: Marks, begins: str = "", *, trims: frozenset[str] = frozenset(),
    tool: Marks | None = None, others: Marks | None = None, begin: str = "",
) -> TurnFormat:  # fmt: skip
    roles = {"system": system, "user": user, "assistant": assistant} | ({} if tool is None else {"tool": tool})
    return TurnFormat(roles, others, begins, begin, trims)


def _command_r(name: str) -> Marks:
    return f"<|START_OF_TURN_TOKEN|><|{name}_TOKEN|>", "<|END_OF_TURN_TOKEN|>"


_GRANITE = _each("<|start_of_role|>ROLE<|end_of_role|>", "<|end_of_text|>\n",
                 "<|start_of_role|>assistant<|end_of_role|>")  # fmt: skip
_DEEPSEEK_END = "<｜end▁of▁sentence｜>"
_BAILING = {role: (f"<role>{name}</role>", "") for role, name in
            (("system", "SYSTEM"), ("user", "HUMAN"), ("assistant", "ASSISTANT"), ("tool", "TOOL"))}  # fmt: skip


def _exaone(mark: str, end: str, user_end: str, *, tool: bool) -> TurnFormat:
    def marks(role: str) -> Marks:
        return mark.replace("ROLE", role), user_end if role == "user" else end

    return _three(marks("system"), marks("user"), marks("assistant"), mark.replace("ROLE", "assistant"), trims=ALL,
                  tool=marks("tool") if tool else None)  # fmt: skip


def _kimi(group: str, role: str) -> Marks:
    return f"<|im_{group}|>{role}<|im_middle|>", "<|im_end|>"


TURN_FORMATS: Mapping[str, TurnFormat] = {
    "chatml": _each("<|im_start|>ROLE\n", "<|im_end|>\n", "<|im_start|>assistant\n"),
    "llama3": _each("<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>",
                    "<|start_header_id|>assistant<|end_header_id|>\n\n", trims=ALL),
    "llama4": _each("<|header_start|>ROLE<|header_end|>\n\n", "<|eot|>",
                    "<|header_start|>assistant<|header_end|>\n\n", trims=ALL),
    "command-r": _three(_command_r("SYSTEM"), _command_r("USER"), _command_r("CHATBOT"), _command_r("CHATBOT")[0],
                        trims=ALL),
    "mistral-v7": _three(("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"), ("[INST] ", "[/INST]"), (" ", "</s>"),
                         others=(" ", "</s>")),
    "mistral-v7-tekken": _three(("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), ("[INST]", "[/INST]"), ("", "</s>"),
                                others=("", "</s>")),
    "phi3": _each("<|ROLE|>\n", "<|end|>\n", "<|assistant|>\n"),
    "phi4": _each("<|im_start|>ROLE<|im_sep|>", "<|im_end|>", "<|im_start|>assistant<|im_sep|>"),
    "falcon3": _each("<|ROLE|>\n", "\n", "<|assistant|>\n"),
    "zephyr": _each("<|ROLE|>\n", "<|endoftext|>\n", "<|assistant|>\n"),
    "openchat": _three(("", "<|end_of_turn|>"), ("GPT4 Correct User: ", "<|end_of_turn|>"),
                       ("GPT4 Correct Assistant: ", "<|end_of_turn|>"), "GPT4 Correct Assistant:",
                       tool=("GPT4 Correct Tool: ", "<|end_of_turn|>")),
    "vicuna": _three(("", "\n\n"), ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"), "ASSISTANT:"),
    "vicuna-orca": _three(("SYSTEM: ", "\n"), ("USER: ", "\n"), ("ASSISTANT: ", "</s>\n"), "ASSISTANT:"),
    "deepseek": _three(("", ""), ("### Instruction:\n", "\n"), ("### Response:\n", "\n<|EOT|>\n"), "### Response:\n"),
    "deepseek2": _three(("", "\n\n"), ("User: ", "\n\n"), ("Assistant: ", _DEEPSEEK_END), "Assistant:"),
    "deepseek3": _three(("", "\n\n"), ("<｜User｜>", ""), ("<｜Assistant｜>", _DEEPSEEK_END), "<｜Assistant｜>"),
    "deepseek-ocr": TurnFormat(others=("", "")),
    "chatglm3": _each("<|ROLE|>\n ", "", "<|assistant|>", begin="[gMASK]sop"),
    "chatglm4": _each("<|ROLE|>\n", "", "<|assistant|>\n", begin="[gMASK]<sop>"),
    "glmedge": _each("<|ROLE|>\n", "", "<|assistant|>"),
    "minicpm": TurnFormat({"user": ("<用户>", "<AI>")}, ("", ""), trims=ALL),
    "exaone3": _exaone("[|ROLE|]", "[|endofturn|]\n", "\n", tool=False),
    "exaone4": _exaone("[|ROLE|]", "[|endofturn|]\n", "\n", tool=True),
    "exaone-moe": _exaone("<|ROLE|>\n", "<|endofturn|>\n", "<|endofturn|>\n", tool=True),
    "granite": _GRANITE,
    "granite-4.0": _GRANITE,
    "granite-4.1": _GRANITE,
    "megrez": _each("<|role_start|>ROLE<|role_end|>", "<|turn_end|>", "<|role_start|>assistant<|role_end|>"),
    "yandex": TurnFormat({"user": (" Пользователь: ", "\n\n"), "assistant": (" Ассистент: ", "\n\n")},
                         opening=" Ассистент:[SEP]"),
    "bailing": TurnFormat(_BAILING, opening="<role>ASSISTANT</role>"),
    "bailing-think": TurnFormat(_BAILING, opening="<role>ASSISTANT</role><think>"),
    "smolvlm": _three(("", "\n\n"), ("User: ", "<end_of_utterance>\n"), ("Assistant: ", "<end_of_utterance>\n"),
                      "Assistant:", others=("Assistant: ", "<end_of_utterance>\n"), begin="<|im_start|>"),
    "hunyuan-moe": _three(("<|startoftext|>", "<|extra_4|>"), ("<|startoftext|>", "<|extra_0|>"), ("", "<|eos|>"),
                          others=("<|startoftext|>", "<|extra_0|>")),
    "gpt-oss": TurnFormat({"assistant": ("<|start|>assistant<|message|>", "<|return|>")},
                          ("<|start|>ROLE<|message|>", "<|end|>"), "<|start|>assistant"),
    "kimi-k2": _three(_kimi("system", "system"), _kimi("user", "user"), _kimi("assistant", "assistant"),
                      _kimi("assistant", "assistant")[0], tool=_kimi("system", "tool"), others=("", "<|im_end|>")),
    "seed_oss": TurnFormat({"assistant": ("<seed:bos>assistant\n", "<seed:eos>")}, ("<seed:bos>ROLE\n", "<seed:eos>"),
                           "<seed:bos>assistant\n", trims=frozenset(["assistant"])),
    "grok-2": _three(("System: ", "<|separator|>\n\n"), ("Human: ", "<|separator|>\n\n"),
                     ("Assistant: ", "<|separator|>\n\n"), "Assistant:", trims=frozenset(["system", "user"])),
    "solar-open": _each("<|begin|>ROLE<|content|>", "<|end|>", "<|begin|>assistant"),
}  # fmt: skip
