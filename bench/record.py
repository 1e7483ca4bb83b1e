"""A flat JSON file of figures that several benchmarks fill: `key: number or text`, absent when not measured."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import click

from pyjet.model.reader import Model
from pyjet.native import build_info

IDENTITY = ("commit", "device", "pyjet", "model")


def commit() -> str:
    """The checkout's commit, "+" when files differ from it; $PJ_COMMIT where there is no git."""
    if given := os.environ.get("PJ_COMMIT"):
        return given
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + "+" * bool(head and _git("status", "--porcelain", "--untracked-files=no"))
    except OSError:
        return ""


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True).stdout.strip()


def size_text(n_params: int) -> str:
    """27.3B, 35M"""
    return f"{n_params / 1e9:.1f}B" if n_params >= 1e9 else f"{n_params / 1e6:.0f}M"


def identity(model: Model, device: str) -> dict[str, Any]:
    """What figures of one file have in common."""
    name = f"{size_text(model.n_params)}, {model.ftype_name}"
    return {"commit": commit(), "device": device, "pyjet": build_info(), "model": name}


def update(path: Path, who: dict[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    """Add figures to a file; those of another build, device or model are dropped. Returns the whole record."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if any(old.get(key) != who[key] for key in IDENTITY):
        old = {}
    record = {**who, **old, "date": time.strftime("%Y-%m-%d"), **figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def show(figures: dict[str, Any]) -> None:
    """A line per figure."""
    width = max(map(len, figures), default=0)
    for key, value in figures.items():
        click.echo(f"{key:{width}} {value}")
