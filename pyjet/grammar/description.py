"""What an answer must look like, as the server hands it to the engine: plain data, picklable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


class GrammarError(ValueError):
    """A grammar or schema that cannot be used: a sentence that says what is wrong, and where."""


@dataclass(frozen=True)
class Mark:
    """Text behind which a grammar begins.

    ``texts``: any of them; ``pattern``: a regular expression of the ``regex`` package that is searched in all of the
    answer instead. ``is_part``: the grammar describes the marked text too, of a pattern with groups from the first one
    on. ``thoughts``: the tags that open and close text in which nothing is a mark; ``inside``: the answer begins there.
    """

    texts: tuple[str, ...] = ()
    pattern: str = ""
    is_part: bool = False
    thoughts: tuple[str, str] | None = None
    inside: bool = False


@dataclass(frozen=True)
class Grammar:
    """``lark``: in llguidance's syntax, ``start`` is the first rule. ``begins_behind``: None: with the first token.

    ``written``: tokens that the answer goes on from, which count as its beginning.
    """

    lark: str
    begins_behind: Mark | None = None
    written: tuple[int, ...] = ()

    def behind(self, tokens: Iterable[int]) -> Grammar:
        """For who goes on behind more tokens of the answer."""
        return replace(self, written=(*self.written, *tokens))
