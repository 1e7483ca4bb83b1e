"""Rewrites literals of class B tests that belong to one particular model."""

from __future__ import annotations

import ast
import re
import sys
from typing import Any

from compat_tests.llama_server.rules import B_RULES
from compat_tests.llama_server.state import State, file_name


def _key(name: str) -> str:
    return f"{file_name(State.item)}::{State.item.name}::{name}" if State.item is not None else name


class Expect:
    """A token count that belongs to one model: equal to anything unless --expect knows better.

    mode: "=" exactly, ">" at least, "<" at most the recorded value, "?" never compared.
    """

    def __init__(self, name: str, original: object, mode: str = "="):
        self.name, self.original, self.mode = name, original, mode

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Expect):
            return self is other
        key = _key(self.name)
        State.seen[key] = other
        if key not in State.expected or self.mode == "?":
            return True
        known = State.expected[key]
        if self.mode == ">":
            return bool(other >= known)
        return bool(other <= known if self.mode == "<" else other == known)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        key = _key(self.name)
        if key in State.expected:
            return f"<expected {self.mode} {State.expected[key]!r}>"
        return f"<any, was {self.original!r}>"


def _ask(path: str, data: dict[str, Any]) -> dict[str, Any]:
    import requests

    server = next(iter(sys.modules["utils"].server_instances))
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else None
    url = f"http://{server.server_host.split(',')[0]}:{server.server_port}{path}"
    answer: dict[str, Any] = requests.post(url, headers=headers, json=data, timeout=60).json()
    return answer


def token_count(text: str) -> int:
    return len(_ask("/tokenize", {"content": text, "add_special": True})["tokens"])


def fill(text: str, n_tokens: int) -> str:
    """Words of ``text``, again and again or only some of them, as many as make ``n_tokens`` tokens at most."""
    words = re.findall(r"\S+\s*", text) * (1 + n_tokens // max(1, token_count(text)))
    words = words[: n_tokens + 1]
    fits, too_many = 0, len(words) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if token_count("".join(words[:middle])) <= n_tokens:
            fits = middle
        else:
            too_many = middle
    return "".join(words[:fits])


def bos_text() -> str:
    """What the running server shows in front of a plain prompt: "<s> " with SPM models, mostly nothing with BPE."""
    shown = str(_ask("/completion", {"prompt": "x", "n_predict": 1, "cache_prompt": False})["prompt"])
    assert shown.endswith("x"), shown
    return shown[:-1]


# names that the rewritten code calls; the plugin puts them into builtins
BUILTINS = {"__compat_expect__": Expect, "__compat_bos__": bos_text, "__compat_tokens__": token_count}


def _call(function: str, *arguments: Any) -> ast.Call:
    nodes = [a if isinstance(a, ast.AST) else ast.Constant(a) for a in arguments]
    return ast.Call(ast.Name(function, ast.Load()), nodes, [])  # type: ignore[arg-type]


class Bend(ast.NodeTransformer):
    """Applies B_RULES to the functions that they name."""

    def __init__(self) -> None:
        self.rule: dict[str, Any] = {}
        self.count: dict[int, int] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        rule = B_RULES.get(node.name)
        if rule is None:
            return node
        self.rule, self.count = rule, {}
        node.body = [self.visit(statement) for statement in node.body]
        for value, mode in rule.get("last_const", {}).items():
            self._wrap_last(node, value, mode)
        self.rule = {}
        return node

    @staticmethod
    def _wrap_last(node: ast.FunctionDef, value: object, mode: str) -> None:
        """The right side of the function's last `assert ... == value`."""

        def matches(n: ast.AST) -> bool:
            if not (isinstance(n, ast.Assert) and isinstance(n.test, ast.Compare)):
                return False
            right = n.test.comparators[0]
            return isinstance(right, ast.Constant) and right.value == value and type(right.value) is type(value)

        found = [n for n in ast.walk(node) if matches(n)]
        if found:
            last: Any = max(found, key=lambda n: n.lineno)  # type: ignore[attr-defined]
            last.test.comparators[0] = _call("__compat_expect__", f"last {value}", value, mode)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        value = node.value
        if type(value) is int and value in self.rule.get("consts", {}):
            n = self.count[value] = self.count.get(value, 0) + 1
            return _call("__compat_expect__", f"{value}#{n}", value, self.rule["consts"][value])
        if type(value) is int and value in self.rule.get("replace", {}):
            return ast.Constant(self.rule["replace"][value])
        if isinstance(value, str) and self.rule.get("bos") and value.startswith("<s> "):
            return ast.BinOp(_call("__compat_bos__"), ast.Add(), ast.Constant(value[4:]))
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in self.rule.get("assign", {}):
            node.value = _call("__compat_expect__", "=" + target.id, node.value, self.rule["assign"][target.id])
        if isinstance(target, ast.Name) and target.id in self.rule.get("tokens", {}):
            node.value = _call("__compat_tokens__", ast.Name(self.rule["tokens"][target.id], ast.Load()))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.rule.get("repeat", {}) and isinstance(node.ctx, ast.Load):
            return ast.BinOp(node, ast.Mult(), ast.Constant(self.rule["repeat"][node.id]))
        return node
