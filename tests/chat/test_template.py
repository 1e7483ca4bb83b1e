"""Rendering: the sandbox, the built-in formats, capabilities, and the Qwen3.5 template against hand-written prompts."""

from __future__ import annotations

import datetime
import json

import pytest

from pyjet.chat import ChatOptions, ChatTemplate, TemplateError, prepare_chat
from pyjet.chat.builtin import BUILTIN_TEMPLATES, render_plain, resolve_template
from tests.chat.conftest import REPOSITORY


def last_line(error: pytest.ExceptionInfo[TemplateError]) -> str:
    return str(error.value).splitlines()[-1]


@pytest.mark.parametrize("source", [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ ('{0.__class__}' | attr('format'))(messages) }}",
    "{% for m in messages %}{{ loop._iterator }}{% endfor %}",
    "{% for m in messages %}{{ loop.cycle.__func__ }}{% endfor %}",
    "{{ messages.__class__.__mro__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ messages | attr('__class__') }}",
    "{{ messages.append(1) }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ 'a' * 100000000000 }}",
    "{{ 10 ** 1000000 }}",
    "{% for i in range(100000000) %}x{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
])
def test_sandbox_refuses(source: str) -> None:
    with pytest.raises(TemplateError) as error:
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}])
    assert "Error: Jinja Exception: " in str(error.value)


def test_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyjet.chat.sandbox.MAX_RENDERED_CHARS", 1000)
    with pytest.raises(TemplateError, match="more than 1000 characters"):
        ChatTemplate("{% for i in range(9999) %}xx{% endfor %}").render([])


def test_syntax_error_names_the_line() -> None:
    with pytest.raises(TemplateError, match="line 2") as error:
        ChatTemplate("a\n{% if %}")
    assert last_line(error).startswith("Error: Jinja Exception: ")


def test_raise_exception_is_the_last_line(qwen_template: ChatTemplate) -> None:
    with pytest.raises(TemplateError) as error:
        qwen_template.render([])
    assert last_line(error) == "Error: Jinja Exception: No messages provided."


def test_messages_are_not_changed() -> None:
    messages = [{"role": "user", "content": "Hi", "tags": ["a"]}]
    ChatTemplate("{% for m in messages %}{% set m = 1 %}{% endfor %}").render(messages)
    assert messages == [{"role": "user", "content": "Hi", "tags": ["a"]}]


def test_helpers() -> None:
    template = ChatTemplate(
        "{% generation %}{{ kept }}{% endgeneration %}{{ {'ü': '<b>&'} | tojson }}{{ missing + 'x' }}"
        "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
        "{{ '<x>' + ('<y>' | safe) }}{{ strftime_now('%Y') }}{{ date_string }}")
    today = datetime.date.today()
    assert template.render([], kwargs={"kept": "K"}) == (
        'K{"ü": "<b>&"}x01<x><y>' + today.strftime("%Y") + today.strftime("%d %b %Y"))


def test_caps_of_qwen(qwen_template: ChatTemplate) -> None:
    assert list(qwen_template.caps) == sorted(qwen_template.caps)
    off = {name for name, value in qwen_template.caps.items() if not value}
    assert off == {"supports_preserve_reasoning", "supports_reasoning_effort"}
    assert len(qwen_template.caps) == 9
    assert qwen_template.supports_thinking and qwen_template.call_format == "qwen_xml"
    assert not qwen_template.allows_late_system


def test_caps_of_others(hermes_template: ChatTemplate) -> None:
    chatml = ChatTemplate(BUILTIN_TEMPLATES["chatml"])
    assert {name for name, value in chatml.caps.items() if value} == {"supports_string_content", "supports_system_role"}
    assert chatml.allows_late_system and chatml.call_format == "content_only" and not chatml.supports_thinking
    assert hermes_template.call_format == "hermes_json"
    typed = ChatTemplate("{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
                         "{{ reasoning_effort }}")
    assert typed.caps["supports_typed_content"] and not typed.caps["supports_string_content"]
    assert typed.caps["supports_reasoning_effort"]


def test_command_r_prompt() -> None:
    messages = [{"role": "system", "content": "You are a test."}, {"role": "user", "content": "Hi there"}]
    assert render_plain("command-r", messages, True) == (
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>You are a test.<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
        "<|USER_TOKEN|>Hi there<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")


def test_template_names() -> None:
    assert resolve_template("chatml") == BUILTIN_TEMPLATES["chatml"]
    assert resolve_template("This is not a chat template") == "This is not a chat template"
    assert resolve_template("vicuna", jinja=False) == BUILTIN_TEMPLATES["vicuna"]
    with pytest.raises(ValueError, match="--jinja"):
        resolve_template("{{ messages }}", jinja=False)


def test_tool_use_variant() -> None:
    template = ChatTemplate("plain", tool_use_source="with tools")
    assert template.for_request(False).render([]) == "plain"
    assert template.for_request(True).render([]) == "with tools"


TOOLS_PREAMBLE = """<|im_start|>system
# Tools

You have access to the following functions:

<tools>
{"type": "function", "function": {"name": "read", "description": "Read <a> file", "parameters": {"type": "object", \
"properties": {"päth": {"type": "string"}}}}}
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within \
<tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell \
the user about function calls
</IMPORTANT>"""
READ = {"type": "function", "function": {
    "name": "read", "description": "Read <a> file", "strict": True,
    "parameters": {"type": "object", "properties": {"päth": {"type": "string"}}}}}


def call(path: str) -> dict[str, object]:
    return {"id": "x", "type": "function", "function": {"name": "read", "arguments": json.dumps({"päth": path})}}


SYSTEM = {"role": "system", "content": "S"}
USER = {"role": "user", "content": "Hi"}
HEAD = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
OPEN = "<|im_start|>assistant\n<think>\n"
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_qwen_plain(qwen_template: ChatTemplate) -> None:
    def prompt(**body: object) -> str:
        return prepare_chat({"messages": [SYSTEM, USER], **body}, qwen_template, ChatOptions()).prompt

    assert prompt() == HEAD + OPEN
    assert prompt(chat_template_kwargs={"enable_thinking": False}) == HEAD + CLOSED
    assert prompt(add_generation_prompt=False) == HEAD


def test_qwen_tool_loop(qwen_template: ChatTemplate) -> None:
    messages = [
        SYSTEM, {"role": "user", "content": "old"},
        {"role": "assistant", "content": "answer", "reasoning_content": "forgotten"},
        USER,
        {"role": "assistant", "content": "Look:", "reasoning_content": "kept", "tool_calls": [call("a"), call("b\nc")]},
        {"role": "tool", "content": "1", "tool_call_id": "x"}, {"role": "tool", "content": "2", "tool_call_id": "y"},
    ]
    prepared = prepare_chat({"messages": messages, "tools": [READ]}, qwen_template, ChatOptions())
    assert prepared.prompt == (
        TOOLS_PREAMBLE + "\n\nS<|im_end|>\n<|im_start|>user\nold<|im_end|>\n<|im_start|>assistant\nanswer<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nkept\n</think>\n\nLook:\n\n<tool_call>\n"
        "<function=read>\n<parameter=päth>\na\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=read>\n"
        "<parameter=päth>\nb\nc\n</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n"
        "1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n" + OPEN)
    assert prepared.parse_tools and prepared.format == "qwen_xml" and prepared.thinking_open
    assert prepared.generation_prompt == OPEN and prepared.parse_prefix == "<think>\n"


def test_evaluation_chats_render(qwen_template: ChatTemplate) -> None:
    chats = [json.loads(line) for line in
             (REPOSITORY / "compat_tests" / "data" / "eval-chats.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(chats) == 40
    for chat in chats:
        # histories of the file have no tool call ids and arguments as objects: both are fine
        thinking = chat["enable_thinking"]
        prepared = prepare_chat({"messages": chat["messages"], "tools": chat["tools"],
                                 "chat_template_kwargs": {"enable_thinking": thinking}}, qwen_template, ChatOptions())
        assert prepared.prompt.endswith(OPEN if thinking else CLOSED)
        assert chat["messages"][-1]["content"].strip() in prepared.prompt
