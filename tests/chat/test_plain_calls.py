"""Calls without tags: an answer that is nothing but JSON which names a tool, from templates that show no tags."""

from __future__ import annotations

import pytest

from pyjet.chat import ChatOptions, ChatTemplate, prepare_chat
from tests.chat.test_families import TOOLS, USER, read_in_pieces

SOURCE = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n" \
         "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}" \
         "{% endfor %}assistant: "
LLAMA = '{"name": "read_file", "parameters": {"path": "a.py", "line": 3}}'
LIST = '[{"name": "read_file", "arguments": {"path": "a.py", "line": 3}, "id": "abcdefghi"}]'
CALL = ("read_file", '{"path":"a.py","line":3}')


def answer(text: str, *, truncated: bool = False, **fields: object) -> tuple[str, list[tuple[str, str]]]:
    """(content, calls)."""
    chat = prepare_chat({"messages": [USER], "tools": TOOLS, **fields}, ChatTemplate(SOURCE), ChatOptions())
    _, content, calls = read_in_pieces(chat, text, truncated=truncated)
    return content, calls


@pytest.mark.parametrize("text", [
    LLAMA, " \n" + LLAMA + "\n", LIST, " " + LIST, '{"type": "function", ' + LLAMA[1:],
    '{"parameters": {"path": "a.py", "line": 3}, "name": "read_file"}',
    '{"name": "read_file", "parameters": "{\\"path\\": \\"a.py\\", \\"line\\": 3}"}',
])  # fmt: skip
def test_one_call(text: str) -> None:
    assert answer(text) == ("", [CALL])


@pytest.mark.parametrize("text", [f"{LLAMA}; {LLAMA}", f"{LLAMA}\n{LLAMA}", f"[{LLAMA}, {LLAMA}]", f"{LIST}\n{LIST}"])
def test_several_calls(text: str) -> None:
    assert answer(text, parallel_tool_calls=True) == ("", [CALL, CALL])
    assert answer(text, parallel_tool_calls=False) == ("", [CALL])


@pytest.mark.parametrize("text", [
    "Hello", '{"name": "Bob", "age": 3}', "[1, 2, 3]", '{"a": 1}', '{"name": Bob}\nand so on', "[", "{", " \n",
    '[{"title": "x"}]', "The call is " + LLAMA, '{"name": "read_files", "parameters": {}}', "{}", '[{"name": 5}]',
    '{"name": "Bob"} and more {"name": "read_file", "parameters": {}}', "\n" * 50 + LLAMA,
])  # fmt: skip
def test_everything_else_stays_text(text: str) -> None:
    assert answer(text) == (text, [])
    assert answer(text, truncated=True) == (text, [])
    for fields in ({"tools": []}, {"tool_choice": "none"}):
        assert answer(LLAMA, **fields) == (LLAMA, [])


def test_text_behind_a_call() -> None:
    assert answer(LIST + "\nDone.")[0] == "Done."
    assert answer(LLAMA + "\nDone.")[0] == "Done."


@pytest.mark.parametrize("text", [LLAMA, LIST])
def test_a_call_may_be_cut_anywhere(text: str) -> None:
    """As text while its name is not known, as the beginning of a call from then on."""
    named = text.index('"read_file"') + len('"read_file"')
    for end in range(len(text)):
        content, calls = answer(text[:end], truncated=True)
        if end < named:
            assert (content, calls) == (text[:end], [])
        else:
            assert content == "" and CALL[1].startswith(calls[0][1])
