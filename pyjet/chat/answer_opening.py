"""The text that opens the answer's turn, from one rendering of a conversation instead of two."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import nodes

FLAG = "add_generation_prompt"


class OpeningFlag:
    """A true value of ``add_generation_prompt`` that notes how many pieces of text there were when it was looked at."""

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = pieces
        self.n_before: int | None = None

    def __bool__(self) -> bool:
        if self.n_before is None:
            self.n_before = len(self._pieces)
        return True


def opens_at_end(template: nodes.Template) -> bool:
    """Whether the flag only decides about what stands last, so that without it the text is the same up to there.

    So it is with `{% if add_generation_prompt %}…{% endif %}` at the end, perhaps with further conditions.
    """
    last = template.body[-1] if template.body else None
    if not isinstance(last, nodes.If) or last.elif_ or last.else_:
        return False
    n_references = sum(name.name == FLAG for name in template.find_all(nodes.Name))
    n_conditions = sum(isinstance(each, nodes.Name) and each.name == FLAG for each in _conditions(last.test))
    return n_references == n_conditions > 0


def _conditions(test: nodes.Node) -> Iterator[nodes.Node]:
    """What must all be true."""
    if isinstance(test, nodes.And):
        yield from _conditions(test.left)
        yield from _conditions(test.right)
    else:
        yield test
