"""Imports point one way: model < native, grammar < engine; chat beside it; server; cli. Only native knows ctypes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "assets": set(),
    "model": {"assets"},
    "native": {"model", "assets"},
    "grammar": {"model", "assets"},
    "engine": {"native", "grammar", "model", "assets"},
    "chat": {"grammar", "model", "assets"},
    "server": {"chat", "engine", "grammar", "native", "model", "assets"},
    "cli": {"server", "chat", "engine", "grammar", "native", "model", "assets"},
}
FILES = [p for top in ("pyjet", "cli") for p in sorted((ROOT / top).rglob("*.py")) if (ROOT / top).is_dir()]


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path}: a relative import that leaves its package"
            names |= (
                set() if node.level else {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
            )
    return names


def layer_of(path: Path) -> str | None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "cli" if parts[0] == "cli" else parts[1] if len(parts) > 2 else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    layer = layer_of(path)
    modules = imported_modules(path)
    if layer not in ("native", "cli"):  # cli binds the llama.cpp oracle, never libpyjet
        assert not {m for m in modules if m.split(".")[0] == "ctypes"}, "only pyjet.native may know ctypes"
    if layer in MAY_IMPORT:
        used = {m.split(".")[1] for m in modules if m.startswith("pyjet.")} & set(MAY_IMPORT)
        assert used <= MAY_IMPORT[layer] | {layer}
