"""The prompt of ``/infill``: code before and after a gap, and other files, marked with fill-in-the-middle tokens.

    [FIM_REP]myproject
    [FIM_SEP]FILENAME
    TEXT of an extra file ...
    [FIM_SEP]filename
    [FIM_PRE]PREFIX PROMPT[FIM_SUF]SUFFIX[FIM_MID]

The layout is that of Qwen2.5-Coder (arXiv:2409.12186); project and file name are fixed words at llama-server, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyjet.server.errors import ApiError, invalid_request, key_not_found
from pyjet.server.prompts import mixed_tokens

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer

_BAD_EXTRA = '"input_extra" must be an array of {"filename": string, "text": string}'
_BAD_TEXT = 'extra_context chunk must contain a "text" field with a string value'
_BAD_NAME = 'extra_context chunk\'s "filename" field must be a string'
_SNIPPET = "\n\n--- snippet ---\n\n"


@dataclass(frozen=True)
class InfillLimits:
    """Sizes in tokens: ``n_batch`` for prefix, suffix and prompt; what is left of ``n_context`` is for extra files.

    ``n_predict``: tokens kept free for the answer, twice; -1 when it has no limit. ``suffix_first``: the order
    suffix, prefix, middle.
    """

    n_batch: int
    n_context: int
    n_predict: int
    suffix_first: bool


def infill_prompt(body: Mapping[str, Any], tokenizer: Tokenizer, limits: InfillLimits) -> list[int]:
    """Token ids of the prompt. ApiError 501 when the vocabulary has no such tokens, 400 for wrong fields."""
    before, after, middle = _marks(tokenizer)
    prompt, extra = _prompt(body, tokenizer), _extra_files(body)
    prefix, suffix = (_side(body, name, tokenizer) for name in ("input_prefix", "input_suffix"))
    quarter = limits.n_batch // 4
    prefix_part = [before, *_last(prefix, 3 * quarter), *prompt]
    suffix_part = [after, *suffix[: max(0, quarter - (2 + len(prompt)))]]
    n_extra = max(0, limits.n_context - limits.n_batch - 2 * limits.n_predict)
    start = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    parts = (suffix_part, prefix_part) if limits.suffix_first else (prefix_part, suffix_part)
    return [*_last(_extra_tokens(extra, tokenizer), n_extra), *start, *parts[0], *parts[1], middle]


def _marks(tokenizer: Tokenizer) -> tuple[int, int, int]:
    before, after, middle = tokenizer.fim_pre, tokenizer.fim_suf, tokenizer.fim_mid
    if before is None or after is None or middle is None:
        named = {"prefix": before, "suffix": after, "middle": middle}
        missing = "".join(f"{name} token is missing. " for name, token in named.items() if token is None)
        raise ApiError(501, f"Infill is not supported by this model: {missing}")
    return before, after, middle


def _prompt(body: Mapping[str, Any], tokenizer: Tokenizer) -> list[int]:
    """Text that is already there behind the prefix; special tokens in it are recognised."""
    prompt = body.get("prompt")
    if prompt is None:
        return []
    if not isinstance(prompt, str):
        raise invalid_request('"prompt" must be a string')
    return tokenizer.encode(prompt)


def _side(body: Mapping[str, Any], name: str, tokenizer: Tokenizer) -> list[int]:
    """The user's code: whatever it says, it is text."""
    if name not in body:
        raise key_not_found(name)
    return mixed_tokens(body[name], tokenizer, add_special=False, parse_special=False)


def _extra_files(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(file name, text) of each extra file."""
    extra = body.get("input_extra")
    if extra is None:
        return []
    if not isinstance(extra, list):
        raise invalid_request(_BAD_EXTRA)
    return [_extra_file(chunk) for chunk in extra]


def _extra_file(chunk: Any) -> tuple[str, str]:
    if not isinstance(chunk, dict) or not isinstance(chunk.get("text"), str):
        raise invalid_request(_BAD_TEXT)
    name = chunk.get("filename", "tmp")
    if not isinstance(name, str):
        raise invalid_request(_BAD_NAME)
    return name, chunk["text"]


def _extra_tokens(files: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> list[int]:
    """All files, one after the other, and the name of the file with the gap."""
    tokens: list[int] = []
    if tokenizer.fim_rep is not None:
        tokens += [tokenizer.fim_rep, *_text(tokenizer, "myproject\n")]
    for name, text in files:
        if tokenizer.fim_sep is not None:
            tokens += [tokenizer.fim_sep, *_text(tokenizer, f"{name}\n")]
        else:
            tokens += _text(tokenizer, _SNIPPET)
        tokens += _text(tokenizer, text)
    if tokenizer.fim_sep is not None:
        tokens += [tokenizer.fim_sep, *_text(tokenizer, "filename\n")]
    return tokens


def _text(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, parse_special=False)


def _last(tokens: list[int], count: int) -> list[int]:
    return tokens[max(0, len(tokens) - count) :]
