"""A conversation is rendered once: what opens the answer's turn is the same as from two renderings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyjet.chat import ChatTemplate
from pyjet.chat.template import TemplateError
from tests.support.peer import source_or_skip

OPENING = "{% if add_generation_prompt %}A:{% endif %}"
TALK = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
ONCE = [
    TALK + OPENING,
    TALK + "{%- if add_generation_prompt and not (tools) %}A:{{ enable_thinking }}{% endif %}",
    TALK + "{% if tools and add_generation_prompt %}A:{% if messages %}<think>{% endif %}{% endif %}",
    "{% macro say(m) %}{{ m.content }}{% endmacro %}" + TALK + "{{ say(messages[0]) }}" + OPENING,
]
TWICE = [
    TALK + "{% if not add_generation_prompt %}end{% endif %}",
    TALK + "{% if add_generation_prompt %}A:{% else %}end{% endif %}",
    TALK + "{% if add_generation_prompt or tools %}A:{% endif %}",
    TALK + "{% if add_generation_prompt == true %}A:{% endif %}",
    TALK + OPENING + "end",
    OPENING + TALK,
    "{{ 'x' if add_generation_prompt else 'y' }}" + TALK + OPENING,
    "{% set add_generation_prompt = false %}" + TALK + OPENING,
    TALK + "{{ 'A:' if add_generation_prompt }}",
    TALK,
]
MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}, {"role": "user", "content": "?"}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}]


def runs(template: ChatTemplate, monkeypatch: pytest.MonkeyPatch, **how: Any) -> tuple[tuple[str, str], int]:
    """The two texts, and how often the template ran for them."""
    count = 0
    run = template._run

    def counting(*arguments: Any) -> None:
        nonlocal count
        count += 1
        run(*arguments)

    monkeypatch.setattr(template, "_run", counting)
    both = template.render_turn(MESSAGES, **how)
    return both, count


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("source", [*ONCE, *TWICE])
def test_the_same_texts(source: str, tools: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(source)
    expected = template.render(MESSAGES, tools, False), template.render(MESSAGES, tools, True)
    both, count = runs(template, monkeypatch, tools=tools)
    assert both == expected
    assert count == (1 if source in ONCE else 2)


def test_a_client_may_set_the_variable_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(ONCE[0])
    both, _ = runs(template, monkeypatch, kwargs={"add_generation_prompt": "yes"})
    assert both[0] == both[1] == template.render(MESSAGES, kwargs={"add_generation_prompt": "yes"})


@pytest.mark.parametrize(
    "attempt",
    [
        "messages[0].update(role='x')",
        "messages[0]['pop']('role')",
        "messages[0].tags.append('b')",
        "messages[0].tags.clear()",
        "messages[0]|attr('tags')|attr('pop')()",
        "(messages|map(attribute='tags')|first).pop()",
        "(messages|map('attr', 'clear')|list)[0]()",
        "tools[0].function.clear()",
        "messages.pop()",
    ],
)
def test_messages_and_tools_cannot_be_changed_by_a_template(attempt: str) -> None:
    messages = [{"role": "user", "content": "Hi", "tags": ["a"]}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    with pytest.raises(TemplateError):
        ChatTemplate("{% if " + attempt + " %}{% endif %}").render(messages, tools)
    assert messages == [{"role": "user", "content": "Hi", "tags": ["a"]}]
    assert tools == [{"type": "function", "function": {"name": "f"}}]


def test_templates_of_models() -> None:
    files = sorted((source_or_skip() / "models/templates").glob("*.jinja"))
    assert sum(_agrees(path) for path in files) > 30


def _agrees(path: Path) -> bool:
    """Whether the template runs once, and gives what two runs do. False for one that refuses such messages."""
    template = ChatTemplate(path.read_text("utf-8"), bos_token="<s>", eos_token="</s>")
    try:
        expected = template.render(MESSAGES, TOOLS, False), template.render(MESSAGES, TOOLS, True)
    except TemplateError:
        return False
    assert template.render_turn(MESSAGES, TOOLS) == expected, path.name
    return template._opens_at_end
