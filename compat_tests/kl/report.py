"""The printed table and the record in bench/results."""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.llama_cpp import XLLAMACPP_VERSION
from compat_tests.kl.bound import RESAMPLES, SEED, STANDARD_ERRORS, KvResult, Verdict, misses
from compat_tests.kl.divergence import STATISTICS, Figures
from compat_tests.kl.texts import WINDOW_TOKENS, fingerprints
from pyjet.native import build_info

_HEAD = f"{'file':8} {'KV':5} {'KL divergence, nats':20}" + "".join(
    f" {name:>12}" for name in ("mean", "median", "99%", "max", "same top")
)


def table(verdicts: Sequence[Verdict]) -> str:
    """Per file llama.cpp's own figures, then pyjet's and how they compare; ! marks what is out of bounds.

    A cell that counts the nudged file has its own line of llama.cpp's figures.
    """
    lines, weights = [_HEAD, "-" * len(_HEAD)], ""
    for v in verdicts:
        if v.weights != weights:
            lines.append(f"{v.weights:8} {'':5} {'llama.cpp itself':20}{_numbers(v.own)}")
        elif v.nudged:
            lines.append(f"{'':8} {v.kv_type:5} {'llama.cpp, nudged':20}{_numbers(v.own)}")
        weights = v.weights
        lines.append(f"{'':8} {v.kv_type:5} {'pyjet to llama.cpp':20}{_numbers(v.ours)}")
        lines.append(f"{'':8} {'':5} {'  ratio ± std. error':20}" + "".join(f" {cell:>12}" for cell in ratios(v)))
    return "\n".join(lines)


def _numbers(f: Figures) -> str:
    return "".join(f" {value:12.2e}" for value in (f.mean, f.median, f.p99, f.max)) + f" {f.top1:12.2%}"


def ratios(v: Verdict) -> list[str]:
    """pyjet's figure over llama.cpp's own with its standard error; of the top token the difference in points."""
    cells = []
    for name, error in zip(STATISTICS, v.standard_error.tolist()):
        ours, own, mark = getattr(v.ours, name), getattr(v.own, name), "" if v.within[name] else "!"
        if name == "top1":
            cells.append(f"{100 * (ours - own):+.2f}±{100 * error:.2f}{mark}")
        else:
            cells.append(f"{ours / own:.2f}±{error / own:.2f}{mark}" if own > 0 else f"{ours:.0e}{mark}")
    return cells


def f16_note(verdicts: Sequence[Verdict]) -> str:
    """Whether F16 is within llama.cpp's own figures, which its bound does not ask for."""
    parts = []
    for v in verdicts:
        if v.weights == "F16":
            beyond = [name for name, fits in v.within.items() if not fits]
            parts.append(f"{v.kv_type} KV {'yes' if not beyond else 'not in ' + ', '.join(beyond)}")
    return f"F16 within llama.cpp's own figures (beyond its bound): {'; '.join(parts)}" if parts else ""


def device() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def without_folder(argument: str) -> str:
    """An argument of the command line with the name alone where it is a file: its folder is this machine's."""
    return re.sub(r"[^=]*/", "", argument)


def circumstances(module: str, tested: str) -> dict[str, Any]:
    """When, how and with what a comparison with llama.cpp ran. tested: pyjet's instruction set or GPU."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join([f"python -m {module}", *map(without_folder, sys.argv[1:])]),
        "device": f"{device()}, {tested}",
        "pyjet": build_info(),
        "llama_cpp": f"xllamacpp {XLLAMACPP_VERSION}",
        "texts": fingerprints(),
    }


def record(verdicts: Sequence[Verdict], results: Sequence[KvResult], tested: str, seconds: float) -> dict[str, Any]:
    """Everything that is worth keeping of a run. tested: pyjet's instruction set or GPU."""
    return {
        "what": "KL divergence to llama.cpp, nats",
        **circumstances("compat_tests.kl", tested),
        "tokens": max(map(_tokens, results)),
        "window_tokens": WINDOW_TOKENS,
        "bootstrap": {"resamples": RESAMPLES, "seed": SEED, "standard_errors": STANDARD_ERRORS},
        "seconds": round(seconds),
        "misses": [sentence for v in verdicts for sentence in misses(v)],
        "results": [_entry(v, r) for v, r in zip(verdicts, results)],
    }


def _entry(v: Verdict, r: KvResult) -> dict[str, Any]:
    return {
        "weights": v.weights,
        "kv": v.kv_type,
        "tokens": _tokens(r),
        "llama_cpp": {f"{a} vs {b}": _rounded(sample.figures()) for (a, b), sample in r.own.items()},
        "llama_cpp_nudged": _rounded(r.nudged.figures()) if r.nudged else None,
        "pyjet": {mode: _rounded(sample.figures()) for mode, sample in r.ours.items()},
        "llama_cpp_own": _rounded(v.own),
        "pyjet_pooled": _rounded(v.ours),
        "standard_error": _rounded(Figures(*v.standard_error.tolist())),
        "compared": dict(zip(STATISTICS, ratios(v))),
        "within": v.within,
        "row_paths_equal": v.paths_equal,
    }


def _tokens(r: KvResult) -> int:
    return next(iter(r.ours.values())).kld.size


def _rounded(f: Figures) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in f.as_dict().items()}


def save(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
