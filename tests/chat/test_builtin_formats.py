"""Chat formats by name give llama.cpp's prompts, and stand in for the same templates as there."""

from __future__ import annotations

import ctypes as C
from itertools import product

import pytest

from pyjet.chat import ChatTemplate
from pyjet.chat.builtin import BUILTIN_TEMPLATES, plain_format, render_plain, resolve_template
from tests.support.peer import library_or_skip, source_or_skip

Messages = list[dict[str, str]]

CHAT = [
    {"role": "system", "content": "You are a helpful assistant"},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi there"},
    {"role": "user", "content": "Who are you"},
    {"role": "assistant", "content": "   I am an assistant   "},
    {"role": "user", "content": "Another question"},
]
CHATS: list[Messages] = [
    CHAT,
    CHAT[1:],
    CHAT[:2],
    CHAT[1:2],
    CHAT[:3],
    CHAT[1:5],
    [{"role": "user", "content": " a\n"}, {"role": "user", "content": "b' \\n {{ c }}"}],
    [CHAT[1], CHAT[2], CHAT[0], CHAT[3]],
    [CHAT[1], {"role": "tool", "content": " 42 "}, CHAT[2]],
]
PROMPTS = {
    "llama2": "[INST] You are a helpful assistant\nHello [/INST]Hi there</s>[INST] Who are you [/INST]"
    "   I am an assistant   </s>[INST] Another question [/INST]",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    "Hi there<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWho are you<|eot_id|><|start_header_id|>assistant"
    "<|end_header_id|>\n\nI am an assistant<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnother question"
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral-v1": " [INST] You are a helpful assistant\n\nHello [/INST] Hi there</s> [INST] Who are you [/INST]"
    "    I am an assistant   </s> [INST] Another question [/INST]",
    "mistral-v3-tekken": "[INST]You are a helpful assistant\n\nHello[/INST]Hi there</s>[INST]Who are you[/INST]"
    "   I am an assistant   </s>[INST]Another question[/INST]",
    "mistral-v7": "[SYSTEM_PROMPT] You are a helpful assistant[/SYSTEM_PROMPT][INST] Hello[/INST] Hi there</s>"
    "[INST] Who are you[/INST]    I am an assistant   </s>[INST] Another question[/INST]",
    "gemma": "<start_of_turn>user\nYou are a helpful assistant\n\nHello<end_of_turn>\n<start_of_turn>model\nHi there"
    "<end_of_turn>\n<start_of_turn>user\nWho are you<end_of_turn>\n<start_of_turn>model\nI am an assistant"
    "<end_of_turn>\n<start_of_turn>user\nAnother question<end_of_turn>\n<start_of_turn>model\n",
    "phi3": "<|system|>\nYou are a helpful assistant<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi there<|end|>\n"
    "<|user|>\nWho are you<|end|>\n<|assistant|>\n   I am an assistant   <|end|>\n<|user|>\nAnother question<|end|>\n"
    "<|assistant|>\n",
}


class Message(C.Structure):
    """llama_chat_message"""

    _fields_ = [("role", C.c_char_p), ("content", C.c_char_p)]


@pytest.fixture(scope="module")
def llama() -> C.CDLL:
    library = library_or_skip()
    library.llama_chat_apply_template.restype = C.c_int32
    library.llama_chat_apply_template.argtypes = [
        C.c_char_p, C.POINTER(Message), C.c_size_t, C.c_bool, C.c_char_p, C.c_int32,
    ]  # fmt: skip
    library.llama_chat_builtin_templates.restype = C.c_int32
    library.llama_chat_builtin_templates.argtypes = [C.POINTER(C.c_char_p), C.c_size_t]
    return library


def theirs(llama: C.CDLL, template: str, messages: Messages, opened: bool) -> str | None:
    """llama.cpp's prompt; None when it does not know the template."""
    chat = (Message * len(messages))(*(Message(m["role"].encode(), m["content"].encode()) for m in messages))
    buffer = C.create_string_buffer(8192)
    n = llama.llama_chat_apply_template(template.encode(), chat, len(messages), opened, buffer, len(buffer))
    return None if n < 0 else buffer.raw[:n].decode()


def test_all_names(llama: C.CDLL) -> None:
    names = (C.c_char_p * 200)()
    n = llama.llama_chat_builtin_templates(names, 200)
    assert {name.decode() for name in names[:n]} == set(BUILTIN_TEMPLATES)


@pytest.mark.parametrize("name", sorted(BUILTIN_TEMPLATES))
def test_prompts_like_llama(llama: C.CDLL, name: str) -> None:
    template = ChatTemplate(resolve_template(name), bos_token="", eos_token="")
    for messages, opened in product(CHATS, (False, True)):
        expected = theirs(llama, name, messages, opened)
        assert render_plain(name, messages, opened) == expected, messages
        assert template.render(messages, add_generation_prompt=opened) == expected
    assert template.plain_format is not None and resolve_template(name, jinja=False) == template.source


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts(name: str) -> None:
    assert render_plain(name, CHAT, True) == PROMPTS[name]


def test_formats_of_templates_like_llama(llama: C.CDLL) -> None:
    """Templates of models are taken for the same formats, or for none."""
    files = (source_or_skip() / "models/templates").glob("*.jinja")
    sources = {path.name: path.read_text("utf-8") for path in files}
    assert len(sources) > 40
    guesses = {name: plain_format(source) for name, source in sources.items()}
    assert len(set(guesses.values())) > 10
    for file, name in guesses.items():
        got = None if name is None else render_plain(name, CHAT, True)
        assert got == theirs(llama, sources[file], CHAT, True), (file, name)
