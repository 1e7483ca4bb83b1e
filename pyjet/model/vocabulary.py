"""The tokens of a GGUF file: texts, kinds, roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pyjet.model.errors import ModelError
from pyjet.model.special_tokens import (
    ALWAYS_SHOWN,
    DEFAULT_IDS,
    END_OF_GENERATION,
    ENDING_ROLES,
    NEVER_STRIPS,
    ROLES,
    STRIPS_RIGHT,
    WITHOUT_BOS,
)

_PREFIX = "tokenizer.ggml."


class TokenKind(IntEnum):
    """tokenizer.ggml.token_type."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """texts[id] is the raw vocabulary string. A token missing from all sets is a normal one."""

    texts: list[str]
    ids: dict[str, int]
    control: frozenset[int]  # matched in text only with parse_special; shown only on request
    unknown: frozenset[int]  # treated like control tokens
    user_defined: frozenset[int]  # always matched in text, always shown
    byte: frozenset[int]  # "<0x0A>": one raw byte
    silent: frozenset[int]  # unused and undefined tokens: no text at all
    roles: dict[str, int | None]  # keys of special_tokens.ROLES
    ends: frozenset[int]  # tokens that end a generation
    strips_right: frozenset[int] = frozenset()  # special tokens behind which blanks are dropped

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Vocabulary:
        """Raises ModelError naming the metadata key that is missing, of the wrong type or inconsistent."""
        texts = _texts(metadata)
        ids = {text: index for index, text in enumerate(texts)}
        if len(ids) != len(texts):
            twice = next(text for index, text in enumerate(texts) if ids[text] != index)
            raise ModelError(f"metadata key '{_PREFIX}tokens' has the token {twice!r} twice; convert the model again")
        kinds = _ids_by_kind(metadata, len(texts))
        roles, found = _find_roles(metadata, ids)
        control = kinds[TokenKind.CONTROL] | found
        ends = {ids[text] for text in END_OF_GENERATION if text in ids}
        control |= ends
        shown = {ids[text] for text in ALWAYS_SHOWN if text in ids}
        ends |= {index for role in ENDING_ROLES if (index := roles[role]) is not None}
        shown |= _harmony_end(ids, ends)
        plain = _plain_sentence_end(ids, ends)
        changed = shown | plain
        special = control | kinds[TokenKind.UNKNOWN] | kinds[TokenKind.USER_DEFINED] | shown
        return cls(
            texts=texts,
            ids=ids,
            control=frozenset(control - changed),
            unknown=frozenset(kinds[TokenKind.UNKNOWN] - changed),
            user_defined=frozenset((kinds[TokenKind.USER_DEFINED] | shown) - plain),
            byte=frozenset(kinds[TokenKind.BYTE] - changed),
            silent=frozenset((kinds[TokenKind.UNUSED] | kinds[TokenKind.UNDEFINED]) - changed),
            roles=roles,
            ends=frozenset(ends - changed),
            strips_right=_stripping(metadata, ids, special),
        )


def _texts(metadata: Mapping[str, Any]) -> list[str]:
    texts = string_list(metadata, "tokens")
    if "" not in texts:
        return texts
    return [text or f"[EMPTY_{index}]" for index, text in enumerate(texts)]


def string_list(metadata: Mapping[str, Any], name: str) -> list[str]:
    """A list of strings under tokenizer.ggml.`name`; ModelError when it is missing or of another type."""
    value = metadata.get(_PREFIX + name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ModelError(f"metadata key '{_PREFIX}{name}' is missing or not a list of strings; convert the model again")
    return value


def _ids_by_kind(metadata: Mapping[str, Any], n_tokens: int) -> dict[TokenKind, set[int]]:
    by_kind: dict[TokenKind, set[int]] = {kind: set() for kind in TokenKind}
    types = metadata.get(_PREFIX + "token_type")
    if types is None:
        return by_kind
    numbers = isinstance(types, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in types)
    if not numbers or len(types) < n_tokens:
        raise ModelError(f"metadata key '{_PREFIX}token_type': expected {n_tokens} integers, one for each token")
    known = {int(kind): kind for kind in TokenKind}
    for index, number in enumerate(types[:n_tokens]):
        if number != TokenKind.NORMAL:
            by_kind[known.get(number, TokenKind.UNDEFINED)].add(index)
    return by_kind


def _find_roles(metadata: Mapping[str, Any], ids: Mapping[str, int]) -> tuple[dict[str, int | None], set[int]]:
    """The token of each role, and the ids that were found by their text (these count as control tokens)."""
    roles: dict[str, int | None] = {}
    by_text: set[int] = set()
    defaults = DEFAULT_IDS.get(str(metadata.get(_PREFIX + "model")), {})
    if metadata.get(_PREFIX + "pre") in WITHOUT_BOS:
        defaults = {role: index for role, index in defaults.items() if role != "bos"}
    for role, (keys, texts) in ROLES.items():
        index = _role_id(metadata, keys, defaults.get(role), len(ids))
        if index is None:
            index = next((ids[text] for text in texts if text in ids), None)
            by_text |= set() if index is None else {index}
        roles[role] = index
    return roles, by_text


def _role_id(metadata: Mapping[str, Any], keys: tuple[str, ...], default: int | None, n_tokens: int) -> int | None:
    """Ids outside the vocabulary are ignored: some converters write the size of a larger one."""
    chosen = default if default is not None and default < n_tokens else None
    for key in keys:
        value = metadata.get(_PREFIX + key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"metadata key '{_PREFIX}{key}' is {value!r}, expected a token id")
        if 0 <= value < n_tokens:
            chosen = value
    return chosen


def _stripping(metadata: Mapping[str, Any], ids: Mapping[str, int], special: set[int]) -> frozenset[int]:
    """The file does not say which tokens strip; llama-server goes by the model's name."""
    name = str(metadata.get("general.name", "")).lower()
    if not any(part in name for part in STRIPS_RIGHT):
        return frozenset()
    return frozenset(special - {ids[text] for text in NEVER_STRIPS if text in ids})


def _harmony_end(ids: Mapping[str, int], ends: set[int]) -> set[int]:
    """Formats with <|return|> and <|call|> (or <|flush|> and <|calls|>) use <|end|> inside an answer."""
    has = {text for text in ("<|return|>", "<|call|>", "<|calls|>", "<|flush|>") if ids.get(text) in ends}
    call = bool(has & {"<|call|>", "<|calls|>"})
    return {ids["<|end|>"]} if "<|end|>" in ids and call and has & {"<|return|>", "<|flush|>"} else set()


def _plain_sentence_end(ids: Mapping[str, int], ends: set[int]) -> set[int]:
    """Vocabularies with one of these markers use "</s>" as ordinary text."""
    marked = any(ids.get(text) in ends for text in ("<|tool_response>", "<|plamo:eos|>"))
    return {ids["</s>"]} if marked and "</s>" in ids else set()
