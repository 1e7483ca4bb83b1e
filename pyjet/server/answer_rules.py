"""The grammar of an answer, from the settings of a request or of the command line, ready for the engine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyjet.chat.answer_grammar import Wanted, answer_grammar
from pyjet.chat.types import ChatError, PreparedChat
from pyjet.grammar.description import Mark
from pyjet.grammar.marks import compile_pattern
from pyjet.server.completion_params import CompletionParams
from pyjet.server.errors import ApiError

if TYPE_CHECKING:
    from pyjet.model.tokenizer import Tokenizer
    from pyjet.server.options import ServerOptions

_CONSTRAINTS = ("grammar", "json_schema", "response_format")
NO_TRIGGERS = "Field 'grammar_triggers': Error: no triggers set for lazy grammar!"
_TOKEN, _WORD, _PATTERN, _PATTERN_FULL = range(4)  # types of llama-server's triggers


def text_rules(params: CompletionParams, tokenizer: Tokenizer) -> None:
    """Set ``rules`` of a text completion. ApiError 400 for a grammar or schema that cannot be used."""
    wanted = Wanted(schema=None if params.grammar else params.json_schema, grammar=params.grammar)
    try:
        params.rules = answer_grammar(wanted, thinking_open=False, may_think=False)
    except ChatError as error:
        raise ApiError(error.status, error.message, error.type) from error
    _begin_late(params, tokenizer)
    _show(params)


def chat_rules(params: CompletionParams, prepared: PreparedChat, tokenizer: Tokenizer) -> None:
    """Set ``rules`` of a chat's answer."""
    rules = prepared.grammar
    if rules is not None and rules.begins_behind is None and prepared.prefill_content:
        rules = replace(rules, written=tuple(tokenizer.encode(prepared.prefill_content, parse_special=False)))
    params.rules = rules
    if params.grammar:
        _begin_late(params, tokenizer)
    _show(params)


def with_defaults(body: Mapping[str, Any], options: ServerOptions) -> Mapping[str, Any]:
    """A chat request with the command line's grammar or schema, where it asks for nothing of its own."""
    if body.get("tools") or any(body.get(name) is not None for name in _CONSTRAINTS):
        return body
    if options.grammar:
        return {**body, "grammar": options.grammar}
    return {**body, "json_schema": json.loads(options.json_schema)} if options.json_schema else body


def _begin_late(params: CompletionParams, tokenizer: Tokenizer) -> None:
    if params.rules is not None and params.grammar_lazy:
        if not params.grammar_triggers:
            raise ApiError(400, NO_TRIGGERS)
        params.rules = replace(params.rules, begins_behind=_mark(params.grammar_triggers, tokenizer))


def _show(params: CompletionParams) -> None:
    """In generation_settings: the grammar that a schema or tools led to, and what it waits for."""
    if params.rules is None or params.grammar:
        return
    params.grammar = params.rules.lark
    if (mark := params.rules.begins_behind) is not None and mark.is_part:
        params.grammar_lazy = True
        params.grammar_triggers = [{"type": _WORD, "value": text} for text in mark.texts]


def _mark(triggers: list[Any], tokenizer: Tokenizer) -> Mark:
    """Any of llama-server's triggers: a token, a word, or a pattern in the answer or of all of it."""
    words, patterns = [], []
    for trigger in triggers:
        kind, value = (trigger.get("type"), trigger.get("value")) if isinstance(trigger, dict) else (None, None)
        token = trigger.get("token") if isinstance(trigger, dict) else None
        if kind == _TOKEN and isinstance(token, int) and 0 <= token < tokenizer.n_vocab:
            words.append(tokenizer.token_bytes(token).decode("utf-8", "replace"))
        elif kind == _WORD and isinstance(value, str) and value:
            words.append(value)
        elif kind in (_PATTERN, _PATTERN_FULL) and isinstance(value, str):
            patterns.append(value if kind == _PATTERN else rf"\A(?:{value})\Z")
        else:
            raise _bad_trigger(f"{json.dumps(trigger)} is no trigger: expected a token, a word or a pattern")
    if not patterns:
        return Mark(tuple(words), is_part=True)
    pattern = "|".join([*(re.escape(word) for word in words), *patterns])
    try:
        compile_pattern(pattern)
    except ValueError as error:
        raise _bad_trigger(f"the pattern {pattern!r} cannot be used: {error}") from None
    return Mark(pattern=pattern, is_part=True)


def _bad_trigger(reason: str) -> ApiError:
    return ApiError(400, f"Field 'grammar_triggers': Error: {reason}")
