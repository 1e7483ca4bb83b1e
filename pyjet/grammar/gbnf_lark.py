"""GBNF in llguidance's syntax.

llguidance reads text as words (terminals, which are regular expressions) and sentences of words (rules). A terminal
takes as much text as it can, so what is regular becomes one terminal as large as possible: within it nothing has to be
decided word by word. Rules remain where a rule contains itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyjet.grammar.description import GrammarError
from pyjet.grammar.gbnf import CharClass, Choice, GbnfReader, Literal, Node, Repeat, Rule, RuleRef, Sequence, fail_at

ROOT = "root"


def grammar_to_lark(text: str) -> str:
    """A client's grammar: GBNF, or llguidance's own syntax when it begins with %llguidance. Raises GrammarError."""
    return text if text.lstrip().startswith("%llguidance") else gbnf_to_lark(text)


def gbnf_to_lark(text: str) -> str:
    """Raises GrammarError that names line and column."""
    rules = GbnfReader(text).rules()
    if ROOT not in rules:
        raise GrammarError(f"line 1, column 1: expected a rule named '{ROOT}', with which every text begins")
    for rule in rules.values():
        for ref in references(rule.body):
            if ref.name not in rules:
                fail_at(text, ref.position, f"there is no rule named '{ref.name}'")
    reached = _reached(rules)
    if reached[ROOT].body == Sequence(()):
        fail_at(text, rules[ROOT].position, f"the rule '{ROOT}' describes nothing")
    if ROOT not in _productive(reached):
        fail_at(text, rules[ROOT].position, f"no text follows the rule '{ROOT}': it never comes to an end")
    return _Writer(reached).write()


def references(node: Node) -> Iterator[RuleRef]:
    """All rules that a node names."""
    if isinstance(node, RuleRef):
        yield node
    elif isinstance(node, Repeat):
        yield from references(node.node)
    elif isinstance(node, Sequence | Choice):
        for child in node.nodes:
            yield from references(child)


def _reached(rules: dict[str, Rule]) -> dict[str, Rule]:
    """The root and the rules that it needs."""
    reached, waiting = {ROOT: rules[ROOT]}, [ROOT]
    while waiting:
        for ref in references(rules[waiting.pop()].body):
            if ref.name not in reached:
                reached[ref.name] = rules[ref.name]
                waiting.append(ref.name)
    return reached


def _productive(rules: dict[str, Rule]) -> set[str]:
    """Rules that some text follows."""
    found: set[str] = set()
    while True:
        more = {name for name, rule in rules.items() if name not in found and _can_end(rule.body, found)}
        if not more:
            return found
        found |= more


def _can_end(node: Node, productive: set[str]) -> bool:
    if isinstance(node, RuleRef):
        return node.name in productive
    if isinstance(node, Repeat):
        return node.least == 0 or _can_end(node.node, productive)
    if isinstance(node, Sequence):
        return all(_can_end(child, productive) for child in node.nodes)
    return not isinstance(node, Choice) or any(_can_end(child, productive) for child in node.nodes)


def _regular(rules: dict[str, Rule]) -> set[str]:
    """Rules that neither contain themselves nor one that does."""
    regular: set[str] = set()
    while True:
        more = {
            name
            for name, rule in rules.items()
            if name not in regular and all(ref.name in regular for ref in references(rule.body))
        }
        if not more:
            return regular
        regular |= more


class _Writer:
    """Terminals are T0, T1, ..., rules r0, r1, ..."""

    def __init__(self, rules: dict[str, Rule]) -> None:
        self._rules = rules
        self._regular = _regular(rules)
        self._names = {
            name: f"{'T' if name in self._regular else 'r'}{number}" for number, name in enumerate(rules)
        }
        self._lines: list[str] = []
        self._terminals: dict[str, str] = {}  # of parts of rules, by what they are

    def write(self) -> str:
        for name, rule in self._rules.items():
            body = self._regex(rule.body) if name in self._regular else self._rule(rule.body)
            self._lines.append(f"{self._names[name]}: {body}")
        extra = [f"{name}: {body}" for body, name in self._terminals.items()]
        return "\n".join([f"start: {self._names[ROOT]}", *self._lines, *extra]) + "\n"

    def _is_regular(self, node: Node) -> bool:
        return all(ref.name in self._regular for ref in references(node))

    def _regex(self, node: Node) -> str:
        """Of a terminal."""
        if isinstance(node, Literal):
            return json.dumps(node.text, ensure_ascii=False)
        if isinstance(node, CharClass):
            return _char_class(node)
        if isinstance(node, RuleRef):
            return self._names[node.name]
        if isinstance(node, Repeat):
            return f"({self._regex(node.node)}){_times(node)}"
        if not node.nodes:
            return '""'
        mark = " | " if isinstance(node, Choice) else " "
        return "(" + mark.join(self._regex(child) for child in node.nodes) + ")"

    def _rule(self, node: Node) -> str:
        """Of a rule. Neighbours that are regular are one terminal."""
        if self._is_regular(node):
            return self._terminal(node)
        if isinstance(node, RuleRef):
            return self._names[node.name]
        if isinstance(node, Repeat):
            return f"({self._rule(node.node)}){_times(node)}"
        assert isinstance(node, Sequence | Choice)
        if isinstance(node, Choice):
            return "(" + " | ".join(self._rule(child) for child in node.nodes) + ")"
        parts: list[str] = []
        run: list[Node] = []
        for child in (*node.nodes, None):
            if child is not None and self._is_regular(child):
                run.append(child)
                continue
            if run:
                parts.append(self._terminal(run[0] if len(run) == 1 else Sequence(tuple(run))))
                run = []
            if child is not None:
                parts.append(self._rule(child))
        return "(" + " ".join(parts) + ")"

    def _terminal(self, node: Node) -> str:
        if isinstance(node, RuleRef):
            return self._names[node.name]
        body = self._regex(node)
        if body == '""':
            return body
        return self._terminals.setdefault(body, f"P{len(self._terminals)}")


def _times(node: Repeat) -> str:
    if (node.least, node.most) in ((0, None), (1, None), (0, 1)):
        return {(0, None): "*", (1, None): "+", (0, 1): "?"}[node.least, node.most]
    return f"{{{node.least},{'' if node.most is None else node.most}}}"


def _char_class(node: CharClass) -> str:
    if not node.ranges:
        return "/(?s:.)/"
    ranges = "".join(_char(first) + ("" if first == last else f"-{_char(last)}") for first, last in node.ranges)
    return f"/[{'^' if node.is_negated else ''}{ranges}]/"


def _char(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}"
