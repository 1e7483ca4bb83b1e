"""The ``prompt`` field: text, token ids, mixtures, and lists of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyjet.chat.types import ChatError
from pyjet.chat.validation import check_parts
from pyjet.server.errors import ApiError, invalid_request, key_not_found, type_error

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer

_WRONG_ELEMENT = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt string, or a list of '
    "mixed strings & tokens."
)
_MULTIMODAL = "Multimodal data provided, but model does not support multimodal requests."


def read_prompts(body: Mapping[str, Any], tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of every prompt in ``body``; special tokens in strings are recognised.

    A list with a number in it is one prompt, any other list holds several. ApiError 400 for other shapes.
    """
    if "prompt" not in body:
        raise key_not_found("prompt")
    prompt = body["prompt"]
    if isinstance(prompt, list) and not any(_is_number(element) for element in prompt):
        if not prompt:
            raise ApiError(400, '"prompt" must not be empty')
        return [_one_prompt(element, tokenizer) for element in prompt]
    return [_one_prompt(prompt, tokenizer)]


def read_inputs(value: Any, tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of texts to embed: as in :func:`read_prompts`, and ``{"content": [text parts]}`` is a text, too.

    An empty list gives an empty one.
    """
    if isinstance(value, list) and not any(_is_number(element) for element in value):
        return [_one_input(element, tokenizer) for element in value]
    return [_one_input(value, tokenizer)]


def message_starts(prompt: Sequence[int], turn_start: int | None) -> tuple[int, ...]:
    """Offsets of the token that begins a message, ascending; none when the template has no such token."""
    if turn_start is None:
        return ()
    starts, last = [], -1
    for _ in range(prompt.count(turn_start)):
        last = prompt.index(turn_start, last + 1)
        starts.append(last)
    return tuple(starts)


def mixed_tokens(content: Any, tokenizer: Tokenizer, *, add_special: bool, parse_special: bool) -> list[int]:
    """Tokens of a string, or of a list of strings and token ids. ApiError 400 for anything else."""
    if isinstance(content, str):
        return tokenizer.encode(content, add_special=add_special, parse_special=parse_special)
    if not isinstance(content, list):
        raise type_error("string", content)
    tokens: list[int] = []
    for position, part in enumerate(content):
        if isinstance(part, str):
            first = add_special and position == 0
            tokens += tokenizer.encode(part, add_special=first, parse_special=parse_special)
        else:
            tokens.append(read_token(part, tokenizer))
    return tokens


def read_token(value: Any, tokenizer: Tokenizer) -> int:
    """A token id. ApiError 400 for one that is not in the vocabulary."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise type_error("number", value)
    if not 0 <= value < tokenizer.n_vocab:
        raise invalid_request("Prompt contains invalid tokens")
    return int(value)


def _one_input(value: Any, tokenizer: Tokenizer) -> list[int]:
    if not (isinstance(value, dict) and "content" in value):
        return _one_prompt(value, tokenizer)
    content = value["content"]
    if not isinstance(content, list):
        raise ApiError(400, '"content" must be an array')
    try:
        check_parts(content)
    except ChatError as error:
        raise ApiError(error.status, error.message) from None
    text = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return tokenizer.encode(text, add_special=True)


def _one_prompt(prompt: Any, tokenizer: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, add_special=True)
    if isinstance(prompt, list):
        return _mixed_prompt(prompt, tokenizer)
    if isinstance(prompt, dict) and "prompt_string" in prompt:
        if "multimodal_data" in prompt:
            raise ApiError(400, _MULTIMODAL)
        return _one_prompt(prompt["prompt_string"], tokenizer)
    raise ApiError(400, _WRONG_ELEMENT)


def _mixed_prompt(elements: list[Any], tokenizer: Tokenizer) -> list[int]:
    """Strings and ids; a BOS comes only before a string at the very beginning."""
    if set(map(type, elements)) == {int}:  # often tens of thousands of ids
        return elements
    tokens: list[int] = []
    for position, element in enumerate(elements):
        if isinstance(element, str):
            tokens += tokenizer.encode(element, add_special=position == 0)
        elif _is_number(element):
            tokens.append(int(element))
        else:
            raise ApiError(400, _WRONG_ELEMENT)
    return tokens


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
