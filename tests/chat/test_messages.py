"""Requests: what is refused and how, and what becomes of the history, thinking and an assistant prefill."""

from __future__ import annotations

from typing import Any

import pytest

from pyjet.chat import ChatError, ChatOptions, ChatStreamParser, ChatTemplate, PreparedChat, prepare_chat
from pyjet.chat.builtin import BUILTIN_TEMPLATES

USER: dict[str, Any] = {"role": "user", "content": "Hi"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}
PLAIN = ChatOptions(jinja=False)
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
SERVER, CLIENT = "server_error", "invalid_request_error"


def history(call: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x"}]}


def content(value: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": value}]}


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages) or [USER], **fields}


ASSISTANT = {"role": "assistant", "content": "A"}
FAILED = "Failed to parse messages: "
# (options, body, status, type, beginning of the message) in the order of checking
REFUSALS: list[tuple[ChatOptions, dict[str, Any], int, str, str]] = [
    (PLAIN, chat(tools=[TOOL]), 500, SERVER, "tools param requires --jinja flag"),
    (PLAIN, chat(tool_choice="none"), 500, SERVER, "tool_choice param requires --jinja flag"),
    (PLAIN, chat(tool_choice={"type": "function"}), 500, SERVER, "tool_choice param requires --jinja flag"),
    (ChatOptions(), {"json_schema": {}, "grammar": "root ::= x"}, 500, SERVER,
     "Cannot use both json_schema and grammar"),
    (ChatOptions(), {"response_format": {"type": "sound"}}, 400, CLIENT,
     'response_format type must be one of "text" or "json_object", but got: sound'),
    (ChatOptions(), {}, 400, CLIENT, "'messages' is required"),
    (ChatOptions(), {"messages": "x"}, 400, CLIENT, "Expected 'messages' to be an array"),
    (ChatOptions(), {"messages": None}, 400, CLIENT, "Expected 'messages' to be an array"),
    (ChatOptions(), chat({"role": "user"}), 400, CLIENT, "All non-assistant messages must contain 'content'"),
    (ChatOptions(), chat("x"), 400, CLIENT, "All non-assistant messages must contain 'content'"),
    (ChatOptions(), chat({"role": "assistant"}), 400, CLIENT,
     "Assistant message must contain either 'content' or 'tool_calls'!"),
    (ChatOptions(), content(5), 400, CLIENT, "Expected 'content' to be a string or an array"),
    (ChatOptions(), content([{"type": "poem"}]), 400, CLIENT, "unsupported content[].type"),
    (ChatOptions(), content(["x"]), 400, CLIENT, "unsupported content[].type"),
    (ChatOptions(), content([IMAGE]), 500, SERVER,
     "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    (ChatOptions(), content([{"type": "input_audio"}]), 500, SERVER, "audio input is not supported - hint: "),
    (ChatOptions(), content([{"type": "video_url"}]), 500, SERVER, "video input is not supported - hint: "),
    (ChatOptions(), content([{"type": "text"}]), 500, SERVER,
     FAILED + "[json.exception.out_of_range.403] key 'text' not found"),
    (ChatOptions(), chat({"content": "ü"}), 500, SERVER, FAILED + """Missing 'role' in message: {"content":"ü"}"""),
    (ChatOptions(), chat({"content": "x", "role": 5}), 500, SERVER,
     FAILED + "[json.exception.type_error.302] type must be string, but is number"),
    (ChatOptions(), history({}), 500, SERVER, FAILED + "Missing tool call type: {}"),
    (ChatOptions(), history({"type": "x"}), 500, SERVER, FAILED + "Unsupported tool call type: "),
    (ChatOptions(), history({"type": "function"}), 500, SERVER, FAILED + "Missing tool call function: "),
    (ChatOptions(), history({"type": "function", "function": {}}), 500, SERVER, FAILED + "Missing tool call name: "),
    (ChatOptions(), chat(tools="x"), 500, SERVER,
     """Failed to parse tools: Expected 'tools' to be an array, got "x"; tools = """),
    (ChatOptions(), chat(tools=[{}]), 500, SERVER, "Failed to parse tools: Missing tool type: {}"),
    (ChatOptions(), chat(tools=[{"type": "web"}]), 500, SERVER, "Failed to parse tools: Unsupported tool type: "),
    (ChatOptions(), chat(tool_choice="bogus"), 400, CLIENT, "Invalid tool_choice: bogus"),
    (ChatOptions(), chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}), 400, CLIENT,
     "Invalid tool_choice: unknown function 'g'"),
    (ChatOptions(), chat(USER, ASSISTANT, ASSISTANT), 400, CLIENT,
     "Cannot have 2 or more assistant messages at the end of the list."),
    (ChatOptions(), chat(USER, ASSISTANT, continue_final_message=True), 400, CLIENT,
     "Cannot set both add_generation_prompt and continue_final_message to true."),
    (ChatOptions(), chat(USER, continue_final_message=True, add_generation_prompt=False), 400, CLIENT,
     "Cannot continue the final message"),
    (ChatOptions(), chat(USER, {"role": "assistant", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": "{}"}}]}), 400, CLIENT,
     "Cannot continue an assistant message that contains tool calls."),
    (ChatOptions(), chat(reasoning_format="loud"), 500, SERVER, "Unknown reasoning format: loud"),
    (ChatOptions(), chat(tools=[TOOL], grammar="root ::= x"), 400, CLIENT,
     "Cannot use custom grammar constraints with tools."),
    (ChatOptions(), chat(chat_template_kwargs={"enable_thinking": "no"}), 400, CLIENT,
     'invalid type for "enable_thinking" (expected boolean, got string)'),
    (ChatOptions(), chat(tools=[TOOL], stream=True, logprobs=True), 400, CLIENT,
     "logprobs is not supported with tools + stream"),
    (ChatOptions(), chat(top_logprobs=2), 400, CLIENT, "top_logprobs requires logprobs to be set to true"),
    (ChatOptions(), chat(grammar="root ::= x"), 400, CLIENT,
     "Failed to initialize samplers: failed to parse grammar: line 1, column 10: there is no rule named 'x'"),
    (ChatOptions(), chat(json_schema={"properties": {"a": {"type": "hiccup"}}}), 400, CLIENT,
     "Field 'json_schema': \"json_schema\": JSON schema conversion failed:\n"
     "JSON schema error at #/properties/a: unrecognized type hiccup"),
]


@pytest.mark.parametrize(("options", "body", "status", "kind", "message"), REFUSALS)
def test_refusals(qwen_template: ChatTemplate, options: ChatOptions, body: dict[str, Any], status: int, kind: str,
                  message: str) -> None:
    with pytest.raises(ChatError) as error:
        prepare_chat(body, qwen_template, options)
    assert (error.value.status, error.value.type) == (status, kind)
    assert error.value.message.startswith(message)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": TOOL["function"]["name"]}}])
def test_without_parsing_a_call_is_not_forced(qwen_template: ChatTemplate, choice: str | dict[str, Any]) -> None:
    """As in llama-server: the tools are in the prompt, the answer is content as the model writes it."""
    body = chat(tools=[TOOL], tool_choice=choice)
    prepared = prepare_chat(body, qwen_template, ChatOptions(skip_chat_parsing=True))
    assert TOOL["function"]["name"] in prepared.prompt
    assert (prepared.grammar, prepared.format, prepared.parse_tools) == (None, "content_only", False)
    assert prepare_chat(body, qwen_template, ChatOptions()).grammar is not None


def test_template_errors_are_500(qwen_template: ChatTemplate) -> None:
    for body, reason in ((chat({"role": "system", "content": "x"}), "No user query found in messages."),
                         ({"messages": []}, "No messages provided."),
                         (chat({"role": "bogus", "content": "x"}, USER), "Unexpected message role.")):
        with pytest.raises(ChatError) as error:
            prepare_chat(body, qwen_template, ChatOptions())
        assert error.value.status == 500
        assert error.value.message.splitlines()[-1] == f"Error: Jinja Exception: {reason}"


@pytest.mark.parametrize("fields", [
    {"tools": None}, {"tools": []}, {"tool_choice": None}, {"response_format": None}, {"grammar": None},
    {"grammar": ""}, {"json_schema": None}, {"response_format": {"type": "text"}}, {"continue_final_message": None},
    {"reasoning_format": None}, {"tool_choice": "required"}, {"logprobs": None, "top_logprobs": None},
    {"stream": "yes"}, {"chat_template_kwargs": {"enable_thinking": 0}}, {"tools": [TOOL], "grammar": None},
])
def test_defaults_and_nulls(qwen_template: ChatTemplate, fields: dict[str, Any]) -> None:
    prepared = prepare_chat(chat(**fields), qwen_template, ChatOptions())
    assert prepared.prompt.endswith("<|im_start|>assistant\n<think>\n")


def test_logprobs(qwen_template: ChatTemplate) -> None:
    def n_probs(**fields: Any) -> int | None:
        return prepare_chat(chat(**fields), qwen_template, ChatOptions()).n_probs

    assert (n_probs(), n_probs(logprobs=True), n_probs(logprobs=True, top_logprobs=3)) == (None, 20, 3)


def prompt(template: ChatTemplate, *messages: Any, options: ChatOptions | None = None, **fields: Any) -> str:
    return prepare_chat(chat(*messages, **fields), template, options or ChatOptions()).prompt


# history


def test_reasoning_spellings_render_alike(qwen_template: ChatTemplate) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    spellings: list[dict[str, Any]] = [
        {"content": "A", "reasoning_content": "T"}, {"content": "A", "reasoning": "T"},
        {"content": "<think>\nT\n</think>\n\nA"},
    ]
    prompts = {prompt(qwen_template, USER, {"role": "assistant", "tool_calls": [call], **spelling},
                      {"role": "tool", "content": "1"}) for spelling in spellings}
    assert len(prompts) == 1
    assert "<think>\nT\n</think>\n\nA\n\n<tool_call>" in prompts.pop()


def test_developer_is_system(qwen_template: ChatTemplate) -> None:
    developer = {"role": "developer", "content": "D"}
    system = {"role": "system", "content": "S"}
    assert prompt(qwen_template, developer, USER) == prompt(qwen_template, {**system, "content": "D"}, USER)
    assert prompt(qwen_template, system, developer, USER).startswith("<|im_start|>system\nS\n\nD<|im_end|>\n")


def test_late_system_stays_in_place(qwen_template: ChatTemplate) -> None:
    late = {"role": "developer", "content": [{"type": "text", "text": "L"}]}
    text = prompt(qwen_template, USER, {**ASSISTANT}, late, USER)
    assert text == ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
                    "<|im_start|>user\n<system>\nL\n</system><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n")
    # the next turn begins with this one's prompt
    assert text.startswith(prompt(qwen_template, USER, {**ASSISTANT}, late, add_generation_prompt=False))
    chatml = ChatTemplate(BUILTIN_TEMPLATES["chatml"])
    assert "<|im_start|>system\nL<|im_end|>" in prompt(chatml, USER, {**ASSISTANT}, late, USER)


def test_typed_content() -> None:
    parts = content([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])["messages"][0]
    both = ChatTemplate("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                        "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}")
    assert prompt(both, parts) == "ab"
    assert prompt(ChatTemplate(BUILTIN_TEMPLATES["chatml"]), parts).startswith("<|im_start|>user\na\nb<|im_end|>")
    lists = ChatTemplate("{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}")
    assert prompt(lists, parts, USER) == "[a][b][Hi]"
    assert prompt(ChatTemplate(BUILTIN_TEMPLATES["llama3"]), parts, options=PLAIN).startswith(
        "<|start_header_id|>user<|end_header_id|>\n\na\nb<|eot_id|>")


def test_call_arguments(qwen_template: ChatTemplate, hermes_template: ChatTemplate) -> None:
    def with_arguments(arguments: Any) -> list[Any]:
        call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        return [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "1"}]

    for arguments in ('{"a": [1, "x"], "b": true}', {"a": [1, "x"], "b": True}):
        text = prompt(qwen_template, *with_arguments(arguments))
        assert '<parameter=a>\n[1, "x"]\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n' in text
        assert '"arguments": {"a": [1, "x"], "b": true}}' in prompt(hermes_template, *with_arguments(arguments))
    # a call that a token limit cut comes back unclosed
    assert "<parameter=a>\nhal\n</parameter>" in prompt(qwen_template, *with_arguments('{"a":"hal'))
    assert "<function=f>\n</function>" in prompt(qwen_template, *with_arguments(""))
    strings = ChatTemplate("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name + "
                           "c.function.arguments }}{% endfor %}{{ m.content }}{% endfor %}")
    assert prompt(strings, *with_arguments({"a": 1})) == 'Hif{"a": 1}1'


def test_no_system_role() -> None:
    template = ChatTemplate("{% for m in messages if m.role != 'system' %}({{ m.role }}:{{ m.content }}){% endfor %}")
    assert prompt(template, {"role": "system", "content": "S"}, USER) == "(user:S\nHi)"


def test_added_tokens_are_removed() -> None:
    template = ChatTemplate("{{ bos_token }}x{{ eos_token }}", bos_token="<s>", eos_token="</s>")
    assert prompt(template, USER) == "<s>x</s>"
    assert prompt(template, USER, options=ChatOptions(add_bos=True, add_eos=True)) == "x"


# thinking


@pytest.mark.parametrize(("options", "fields", "thinks"), [
    (ChatOptions(), {}, True),
    (ChatOptions(reasoning="off"), {}, False),
    (ChatOptions(reasoning="off", template_kwargs={"enable_thinking": True}), {}, True),
    (ChatOptions(reasoning="on"), {"chat_template_kwargs": {"enable_thinking": False}}, False),
    (ChatOptions(reasoning="off"), {"chat_template_kwargs": {"enable_thinking": True}}, True),
    (ChatOptions(), {"reasoning_effort": "none"}, False),
    (ChatOptions(), {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}, False),
    (ChatOptions(), {"reasoning_effort": "low"}, True),
    (ChatOptions(), {"chat_template_kwargs": {"enable_thinking": 0}}, True),
])
def test_enable_thinking(qwen_template: ChatTemplate, options: ChatOptions, fields: dict[str, Any],
                         thinks: bool) -> None:
    prepared = prepare_chat(chat(**fields), qwen_template, options)
    assert prepared.enable_thinking is thinks and prepared.thinking_open is thinks
    assert prepared.prompt.endswith("<think>\n" if thinks else "<think>\n\n</think>\n\n")


def test_kwargs_reach_the_template() -> None:
    template = ChatTemplate("{{ reasoning_effort }}|{{ house_rule }}|{{ enable_thinking }}|{{ preserve_thinking }}"
                            "{% for m in messages %}{{ m.content }}{% if preserve_thinking %}"
                            "{{ m.reasoning_content }}{% endif %}{% endfor %}")
    assert prompt(template, USER, reasoning_effort="high", chat_template_kwargs={"house_rule": 7}) == (
        "high|7|True|TrueHi")
    assert prompt(template, USER, options=ChatOptions(reasoning_effort="low", reasoning_preserve=False)) == (
        "low||True|FalseHi")
    assert prompt(template, USER, reasoning_effort="none", options=ChatOptions(reasoning_effort="low")) == (
        "||False|TrueHi")


# prefill


def answer(prepared: PreparedChat, *pieces: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    parser = ChatStreamParser(prepared)
    deltas = [delta.to_openai() for piece in pieces for delta in parser.push(piece)]
    deltas += [delta.to_openai() for delta in parser.finish()]
    return deltas, parser.message().to_openai()


def test_content_prefill(qwen_template: ChatTemplate) -> None:
    last = {"role": "assistant", "content": "It is ", "reasoning_content": "hmm"}
    prepared = prepare_chat(chat(USER, last), qwen_template, ChatOptions())
    assert prepared.prompt.endswith("<|im_start|>assistant\n<think>\nhmm\n</think>\n\nIt is ")
    assert (prepared.prefill_content, prepared.prefill_reasoning, prepared.thinking_open) == ("It is ", "hmm", False)
    deltas, message = answer(prepared, "five", "!")
    assert deltas == [{"reasoning_content": "hmm"}, {"content": "It is five"}, {"content": "!"}]
    assert message == {"role": "assistant", "content": "It is five!", "reasoning_content": "hmm"}


def test_reasoning_prefill(qwen_template: ChatTemplate) -> None:
    last = {"role": "assistant", "content": "", "reasoning_content": "I think"}
    prepared = prepare_chat(chat(USER, last), qwen_template, ChatOptions())
    assert prepared.prompt.endswith("<|im_start|>assistant\n<think>\nI think") and prepared.thinking_open
    assert answer(prepared, " so\n</think>\n\nYes")[1] == {
        "role": "assistant", "content": "Yes", "reasoning_content": "I think so"}


@pytest.mark.parametrize("echo", [False, True])
def test_continue_final_message(qwen_template: ChatTemplate, echo: bool) -> None:
    prepared = prepare_chat(chat(USER, {**ASSISTANT, "content": "It is "}, continue_final_message=True, echo=echo,
                                 add_generation_prompt=False), qwen_template, ChatOptions())
    assert prepared.prompt.endswith("<think>\n\n</think>\n\nIt is ")
    deltas, message = answer(prepared, "five")
    assert deltas == [{"content": "It is five" if echo else "five"}]
    assert message["content"] == "It is five"


def test_prefill_off(qwen_template: ChatTemplate) -> None:
    text = prompt(qwen_template, USER, ASSISTANT, options=ChatOptions(prefill_assistant=False))
    assert text.endswith("A<|im_end|>\n<|im_start|>assistant\n<think>\n")


def test_plain_template_prefill() -> None:
    for options in (ChatOptions(), PLAIN):
        prepared = prepare_chat(chat(USER, ASSISTANT), ChatTemplate(BUILTIN_TEMPLATES["llama3"]), options)
        assert prepared.prompt.endswith("<|start_header_id|>assistant<|end_header_id|>\n\nA")
    assert prepare_chat(chat(USER), ChatTemplate("x"), ChatOptions()).prompt == "x"
    with pytest.raises(ChatError, match="try using --jinja"):
        prepare_chat(chat(USER), ChatTemplate("x"), PLAIN)
