"""Which token begins a message, for templates of several families."""

from __future__ import annotations

import pytest

from pyjet.assets import default_model_path
from pyjet.chat import ChatTemplate
from pyjet.chat.builtin import BUILTIN_TEMPLATES
from pyjet.chat.turn_start import find_turn_start
from pyjet.model.reader import load_model
from pyjet.model.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(load_model(default_model_path()).metadata)


def found(source: str, tokenizer: Tokenizer) -> str | None:
    token = find_turn_start(ChatTemplate(source), tokenizer)
    return None if token is None else tokenizer.token_text(token)


def test_qwen(qwen_template: ChatTemplate, tokenizer: Tokenizer) -> None:
    assert find_turn_start(qwen_template, tokenizer) == tokenizer.token_id("<|im_start|>")


def test_chatml(tokenizer: Tokenizer) -> None:
    assert found(BUILTIN_TEMPLATES["chatml"], tokenizer) == "<|im_start|>"


def test_tokens_that_the_vocabulary_lacks(tokenizer: Tokenizer) -> None:
    assert found(BUILTIN_TEMPLATES["llama3"], tokenizer) is None


OWN_SYSTEM = (
    "{%- if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif -%}"
    "<|im_start|>system\nBe good.<|im_end|>\n"
    "{%- for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>\n{% endfor %}"
)
ONCE_AT_THE_START = "<|im_start|>{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
LEFT_OUT = "{% for m in messages if m.role != 'assistant' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
TWICE = "{% for m in messages %}<|im_start|>{{ m.role }}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
HEADER = (
    "<|endoftext|>{% for m in messages %}<|vision_start|>{{ m.role }}<|vision_end|>{{ m.content }}<|im_end|>"
    "{% endfor %}"
)


@pytest.mark.parametrize(
    ("source", "token"),
    [
        (OWN_SYSTEM, "<|im_start|>"),
        (HEADER, "<|vision_start|>"),
        (ONCE_AT_THE_START, None),
        (LEFT_OUT, None),
        (TWICE, None),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", None),
        ("{{ raise_exception('never') }}", None),
    ],
)
def test_other_templates(tokenizer: Tokenizer, source: str, token: str | None) -> None:
    assert found(source, tokenizer) == token
