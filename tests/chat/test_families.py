"""Model families end to end: what each template makes of a request, and what the parser makes of the answers.

The templates are written small here, with the marks by which the real ones are told apart.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyjet.chat import ChatOptions, ChatStreamParser, ChatTemplate, prepare_chat
from pyjet.chat.types import PreparedChat

PIECES = (1, 2, 5, 16, 1 << 20)
USER = {"role": "user", "content": "Hi"}
TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}, "required": ["path"]}}}]

_HEAD = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}" \
        "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
_XML_RULES = "{% if tools %}{{ tools | tojson }}<tool_call>\n<function=NAME>\n<parameter=KEY>{% endif %}"
_JSON_RULES = "{% if tools %}{{ tools | tojson }}<tool_call>\n{{ '{\"name\": ' }}</tool_call>{% endif %}"
_OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is false %}" \
        "{{ '<think>\n\n</think>\n\n' }}{% else %}{{ '<think>\n' }}{% endif %}{% endif %}"
_ASIDE = "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is false %}" \
         "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
_PLAIN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

SOURCES = {
    "qwen3.5": _XML_RULES + _HEAD + _OPEN,  # thinks, the prompt opens the thoughts, XML calls
    "qwen3": _JSON_RULES + _HEAD + _ASIDE,  # thinks, opens the thoughts itself, JSON calls
    "qwq": _JSON_RULES + _HEAD + _OPEN,
    "qwen3-coder": _XML_RULES + _HEAD + _PLAIN,
    "qwen2.5": _JSON_RULES + _HEAD + _PLAIN,
}
XML = "<tool_call>\n<function=read_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=line>\n3\n</parameter>\n" \
      "</function>\n</tool_call>"
JSON = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py", "line": 3}}\n</tool_call>'
CALL = ("read_file", '{"path":"a.py","line":3}')
Message = tuple[str, str, list[tuple[str, str]]]


def template(family: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[family], eos_token="<|im_end|>")


def answer(family: str, text: str, *, truncated: bool = False, options: ChatOptions | None = None,
           **fields: Any) -> Message:
    """What the answer of a family's template says."""
    chat = prepare_chat({"messages": [USER], "tools": TOOLS, **fields}, template(family), options or ChatOptions())
    return read_in_pieces(chat, text, truncated=truncated)


def read_in_pieces(chat: PreparedChat, text: str, *, truncated: bool = False) -> Message:
    """(reasoning, content, calls), the same whatever pieces the text comes in; deltas add up to the message."""
    found = []
    for size in PIECES:
        parser = ChatStreamParser(chat)
        deltas = [delta for start in range(0, len(text), size) for delta in parser.push(text[start:start + size])]
        deltas += parser.finish(truncated)
        message = parser.message()
        calls = [(call.name, call.arguments) for call in message.tool_calls]
        for kind, whole in (("reasoning", message.reasoning_content), ("content", message.content)):
            assert "".join(delta.text for delta in deltas if delta.kind == kind) == whole
        for index, (_, arguments) in enumerate(calls):
            pieces = [delta.text for delta in deltas if delta.kind.startswith("tool") and delta.index == index]
            assert "".join(pieces) == arguments
        found.append((message.reasoning_content, message.content, calls))
    assert all(message == found[0] for message in found)
    return found[0]


# (family, answer, reasoning, content, number of calls)
ANSWERS = [
    ("qwen3.5", "hm\n</think>\n\nOk\n" + XML, "hm", "Ok", 1),
    ("qwen3.5", "hm\n" + XML + "\n" + XML, "hm", "", 2),
    ("qwen3.5", "hm\n</think>\n\nOk", "hm", "Ok", 0),
    ("qwen3", "<think>\nhm\n</think>\n\nOk\n" + JSON, "hm", "Ok", 1),
    ("qwen3", "<think>\nhm\n" + JSON, "hm", "", 1),
    ("qwen3", "Ok " + JSON + "\n" + JSON, "", "Ok", 2),
    ("qwen3", "<think>\n\n</think>\n\nOk", "", "Ok", 0),
    ("qwq", "hm\n</think>\n\n" + JSON, "hm", "", 1),
    ("qwen3-coder", "Ok\n" + XML, "", "Ok", 1),
    ("qwen3-coder", "Ok\n" + XML.removeprefix("<tool_call>\n"), "", "Ok", 1),
    ("qwen3-coder", "#include <functional> and <function=other>", "", "#include <functional> and <function=other>", 0),
    ("qwen3-coder", "<think>x</think>y", "", "<think>x</think>y", 0),
    ("qwen2.5", "Ok\n" + JSON + "\n" + JSON, "", "Ok", 2),
    ("qwen2.5", "Hello <tool_call> there", "", "Hello <tool_call> there", 0),
    # the form of the other family, which models that saw both fall into
    ("qwen3.5", "hm\n</think>\n\nOk\n" + JSON, "hm", "Ok", 1),
    ("qwen3-coder", "Ok\n" + JSON + "\n" + XML, "", "Ok", 2),
    ("qwen2.5", "Ok\n" + XML, "", "Ok", 1),
    ("qwen3.5", "not " + JSON + "\n</think>\n\nOk", "not " + JSON, "Ok", 0),
]


@pytest.mark.parametrize(("family", "text", "reasoning", "content", "calls"), ANSWERS)
def test_answers(family: str, text: str, reasoning: str, content: str, calls: int) -> None:
    assert answer(family, text) == (reasoning, content, [CALL] * calls)


@pytest.mark.parametrize("family", SOURCES)
@pytest.mark.parametrize("form", [XML, JSON])
def test_a_call_may_be_cut_anywhere(family: str, form: str) -> None:
    """What is delivered of it never contradicts the whole call, and no tag becomes text."""
    text = "</think>\n\n" * (family in ("qwen3.5", "qwq")) + form
    for end in range(len(text) - len(form), len(text)):
        reasoning, content, calls = answer(family, text[:end], truncated=True)
        assert CALL[1].startswith("".join(arguments for _, arguments in calls))
        assert "tool_call>" not in content + reasoning and "function" not in content + reasoning, text[:end]


def test_an_answer_that_ends_in_the_name_of_a_call() -> None:
    text = '<tool_call>\n{"name": "read_file'
    assert answer("qwen2.5", text) == ("", text, [])
    assert answer("qwen2.5", JSON + "\n" + text)[2] == [CALL]


@pytest.mark.parametrize("family", SOURCES)
@pytest.mark.parametrize("format", ["none", "auto", "deepseek", "deepseek-legacy"])
def test_reasoning_formats(family: str, format: str) -> None:
    opened = family in ("qwen3.5", "qwq")
    text = "hm\n</think>\n\nOk" if opened or family == "qwen3" else "Ok"
    if family == "qwen3":
        text = "<think>\n" + text
    by_request = answer(family, text, reasoning_format=format)
    assert by_request == answer(family, text, options=ChatOptions(reasoning_format=format))
    if format == "none":
        assert by_request == ("", "<think>\n" * opened + text, [])
    else:
        assert by_request == ("hm" if "hm" in text else "", "Ok", [])


@pytest.mark.parametrize("family", SOURCES)
def test_tools_without_calls(family: str) -> None:
    """`tool_choice: "none"` shows the tools and leaves calls as text; without tools nothing is a call."""
    form = XML if template(family).call_format == "qwen_xml" else JSON
    text = "</think>\n\n" * (family in ("qwen3.5", "qwq")) + form
    assert answer(family, text, tool_choice="none") == ("", form, [])
    assert answer(family, text, tools=[]) == ("", form, [])
    body = {"messages": [USER], "tools": TOOLS, "tool_choice": "none"}
    assert "read_file" in prepare_chat(body, template(family), ChatOptions()).prompt


@pytest.mark.parametrize("family", SOURCES)
def test_skip_chat_parsing(family: str) -> None:
    opened = family in ("qwen3.5", "qwq")
    text = "hm\n</think>\n\nOk\n" * opened + (XML if "coder" in family or family == "qwen3.5" else JSON)
    assert answer(family, text, options=ChatOptions(skip_chat_parsing=True)) == ("", text, [])


@pytest.mark.parametrize("family", SOURCES)
@pytest.mark.parametrize("parallel", [None, True, False])
def test_parallel_calls(family: str, parallel: bool | None) -> None:
    form = XML if template(family).call_format == "qwen_xml" else JSON
    text = "</think>\n\n" * (family in ("qwen3.5", "qwq")) + form + "\n" + form + "\nand text"
    fields = {} if parallel is None else {"parallel_tool_calls": parallel}
    may_call_twice = template(family).caps["supports_parallel_tool_calls"] if parallel is None else parallel
    _, content, calls = answer(family, text, **fields)
    assert calls == [CALL] * (2 if may_call_twice else 1)
    assert content == ("and text" if may_call_twice else "")


@pytest.mark.parametrize(("family", "end"), [
    ("qwen3.5", "<think>\nhm\n</think>\n\nIt is"), ("qwen3", "<think>\nhm\n</think>\n\nIt is"),
    ("qwen3-coder", "It is"),
])
def test_prefill(family: str, end: str) -> None:
    last = {"role": "assistant", "content": "It is", "reasoning_content": "hm"}
    chat = prepare_chat({"messages": [USER, last]}, template(family), ChatOptions())
    assert chat.prompt.endswith("<|im_start|>assistant\n" + end)
    assert answer(family, " so", messages=[USER, last]) == ("hm" if "hm" in end else "", "It is so", [])


def test_thinking_off_reaches_every_family() -> None:
    for family in SOURCES:
        body = {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}}
        chat = prepare_chat(body, template(family), ChatOptions())
        assert not chat.thinking_open
        assert answer(family, "Ok", **body)[:2] == ("", "Ok")


def test_calls_of_other_families_stay_text() -> None:
    source = "{% if tools %}{{ tools | tojson }}{% endif %}" + _HEAD + _PLAIN
    chat = prepare_chat({"messages": [USER], "tools": TOOLS}, ChatTemplate(source), ChatOptions())
    assert chat.has_unknown_calls and not chat.parse_tools
    parser = ChatStreamParser(chat)
    parser.push(JSON)
    parser.finish()
    assert parser.message().content == JSON and not parser.message().tool_calls
    for fields in ({"tools": []}, {"tool_choice": "none"}):
        body = {"messages": [USER], "tools": TOOLS, **fields}
        assert not prepare_chat(body, ChatTemplate(source), ChatOptions()).has_unknown_calls


def test_filters_that_leave_generators_have_a_json_form() -> None:
    source = "{{ tools | map(attribute='function') | map(attribute='name') | tojson }}{{ nothing | tojson }}"
    assert ChatTemplate(source).render([USER], TOOLS) == '["read_file"]null'
    with_object = ChatTemplate("{{ raise_exception | tojson }}")
    with pytest.raises(Exception, match="has no JSON form"):
        with_object.render([USER])
    assert json.loads(ChatTemplate("{{ tools | tojson }}").render([USER], TOOLS)) == TOOLS
