"""Whether a grammar can be used, before a request with it is queued."""

from __future__ import annotations

from functools import lru_cache

from llguidance import LLMatcher

from pyjet.grammar.description import GrammarError


def check_lark(lark: str) -> None:
    """Raises GrammarError: the grammar is wrong, or too large for the parser."""
    if message := _message(lark):
        raise GrammarError(message)


@lru_cache(maxsize=64)
def _message(lark: str) -> str:
    try:
        is_error, messages = LLMatcher.validate_grammar_with_warnings(lark)
    except BaseException as error:  # a panic of the parser is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return f"the parser gave up: {error}"
    return str(messages[0]).partition("\n")[0] if is_error else ""
