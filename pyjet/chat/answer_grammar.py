"""The grammar of a chat's answer: a schema, the client's own grammar, or calls of its tools; thoughts stay free."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyjet.chat.call_grammar import call_rules
from pyjet.chat.types import CallFormat, ChatError
from pyjet.grammar.check import check_lark
from pyjet.grammar.description import Grammar, GrammarError, Mark
from pyjet.grammar.gbnf_lark import grammar_to_lark
from pyjet.grammar.json_schema import Care, SchemaError, json_rule

log = logging.getLogger(__name__)

THOUGHTS = ("<think>", "</think>")
_NO_CALL_FORM = (
    'tool_choice "required" needs a chat template whose form of tool calls is known here '
    "(Qwen's XML, or JSON between <tool_call> tags)"
)


@dataclass(frozen=True)
class Wanted:
    """What a request asks for. ``tools``: those that may be called, none when there is nothing to enforce."""

    schema: Any = None
    is_strict: bool = False
    grammar: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    must_call: bool = False
    form: CallFormat = "content_only"
    parallel: bool = True
    bare: bool = False


def answer_grammar(wanted: Wanted, *, thinking_open: bool, may_think: bool) -> Grammar | None:
    """None when the answer is free. ``thinking_open``: it begins inside thoughts; ``may_think``: it may open some.

    What a schema has that cannot be enforced is logged. Raises ChatError with llama-server's status and words.
    """
    try:
        grammar = _grammar(wanted, thinking_open, may_think)
        if grammar is not None:
            check_lark(grammar.lark)
    except SchemaError as error:
        raise ChatError(400, schema_message(error)) from error
    except GrammarError as error:
        raise ChatError(400, f"Failed to initialize samplers: failed to parse grammar: {error}") from error
    return grammar


def schema_message(error: SchemaError) -> str:
    """As llama-server says it."""
    return f"Field 'json_schema': \"json_schema\": JSON schema conversion failed:\n{error}"


def _grammar(wanted: Wanted, thinking_open: bool, may_think: bool) -> Grammar | None:
    if wanted.grammar:
        return Grammar(grammar_to_lark(wanted.grammar))
    has_calls = bool(wanted.tools) and wanted.form != "content_only"
    if wanted.must_call and not has_calls:
        raise ChatError(501, _NO_CALL_FORM, "not_supported_error")
    rules = [] if not has_calls else [
        call_rules(wanted.tools, wanted.form, parallel=wanted.parallel, bare=wanted.bare)
    ]  # fmt: skip
    if wanted.schema is None and not wanted.must_call:
        return _lazy(wanted, rules[0], thinking_open, may_think) if rules else None
    answers = ["calls"] if rules else []
    if wanted.schema is not None and not wanted.must_call:
        care: Care = "strict" if wanted.is_strict else "usual"
        rules.append(f"answer: {json_rule(wanted.schema, care, _warn)}\n")
        answers.append("answer")
    return _behind_thoughts(f"({' | '.join(answers)})", "".join(rules), thinking_open, may_think)


def _lazy(wanted: Wanted, rules: str, thinking_open: bool, may_think: bool) -> Grammar:
    """Free text until a call begins; it and what follows are constrained."""
    texts = ("<tool_call>", "<function=") if wanted.bare else ("<tool_call>",)
    thoughts = THOUGHTS if thinking_open or may_think else None
    mark = Mark(texts, is_part=True, thoughts=thoughts, inside=thinking_open)
    return Grammar(f"start: calls\n{rules}", mark)


def _behind_thoughts(answer: str, rules: str, thinking_open: bool, may_think: bool) -> Grammar:
    """Thoughts that the prompt opens end with a mark; those that the model may open are part of the grammar."""
    gap = "GAP: /\\n{0,3}/\n"
    if thinking_open:
        return Grammar(f"start: GAP {answer}\n{gap}{rules}", Mark((THOUGHTS[1],)))
    if may_think:
        thought = f'thought[suffix="{THOUGHTS[1]}"]: /(?s:.*)/\n'
        return Grammar(f'start: ("{THOUGHTS[0]}" thought GAP)? {answer}\n{gap}{thought}{rules}')
    return Grammar(f"start: {answer}\n{rules}")


def _warn(text: str) -> None:
    log.warning("the schema of the answer: %s", text)
