"""Tokens a second of agents whose drafts are accepted by lot, from pyjet-server and, where given, llama-server."""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench.gpu import device_label
from bench.load_client import Server
from bench.load_scenarios import Load
from bench.server import PYJET, running_server

MTP = ("--spec-type", "draft-mtp", "--spec-draft-n-max", "2", "--spec-synth-rates", "0.8,0.6")
# llama-server b11434 on one H200 with these options and this load, q8_0 KV, 27B Q4_K_M of random weights; the figures
# of its best configuration. Tokens a second of all agents together.
RECORDED_ON = "H200"
LLAMA_CPP = {"1": 115.7, "4": 221.8, "8": 309.8, "4x23k": 174.3}
REQUEST_SECONDS = 120.0
START_SECONDS = 120.0


def load_args(agents: int, sizes: Namespace) -> Namespace:
    return Namespace(agents=agents, short=sizes.short, context=sizes.context, followup=sizes.followup,
                     out=sizes.tokens, seed=time.time_ns() & 0xFFFFFFFF)  # fmt: skip


def play(server: Server, cases: Sequence[str], sizes: Namespace) -> dict[str, list[dict[str, Any]]]:
    """Records of each case: so many agents with short prompts, or 4 with long conversations."""
    found: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        load = Load(load_args(int(case.partition("x")[0]), sizes), server)
        load.warm()
        for rep in range(sizes.reps):
            load.play("followup" if "x" in case else "agents", rep)
        found[case] = [r for r in load.results if r["scenario"] != "build"]
    return found


def figures(records: dict[str, list[dict[str, Any]]], prefix: str = "") -> dict[str, float]:
    """Medians: tokens a second of all agents, and tokens a step."""
    found: dict[str, float] = {}
    for case, results in records.items():
        found[f"{prefix}tok_s_{case}"] = round(statistics.median(r["total_tok_s"] for r in results), 1)
        steps = [r["tokens_per_step"] for r in results if "tokens_per_step" in r]
        if steps:
            found[f"{prefix}tokens_per_step_{case}"] = round(statistics.median(steps), 3)
    return found


def ratios(ours: dict[str, float], peer: dict[str, float], device_name: str) -> dict[str, Any]:
    """Speed over llama-server's: the one measured here, else, on such a device, the recorded one."""
    recorded = LLAMA_CPP if RECORDED_ON in device_name else {}
    found: dict[str, Any] = {}
    for case in LLAMA_CPP:
        speed, other = ours.get(f"tok_s_{case}"), peer.get(f"llama_cpp_tok_s_{case}", recorded.get(case))
        if speed is not None and other is not None:
            found[f"tok_s_ratio_{case}"] = round(speed / other, 3)
    found["llama_cpp_measured_here"] = [case for case in LLAMA_CPP if f"llama_cpp_tok_s_{case}" in peer]
    return found


def served(program: Sequence[str], options: Sequence[str], cases: Sequence[str], sizes: Namespace) -> dict[str, Any]:
    """Records of the cases with a server of its own; none, and the reason, when it fails."""
    click.echo(" ".join([Path(program[0]).name, *options]), err=True)
    try:
        with running_server([*options, *MTP], START_SECONDS, program) as url:
            return {"records": play(Server(url, "llama", None, None, REQUEST_SECONDS), cases, sizes)}
    except (RuntimeError, OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        click.echo(reason, err=True)
        return {"records": {}, "failed": reason}


def measure(common: Sequence[str], device: str, peer: Path | None, sizes: Namespace) -> dict[str, Any]:
    """All cases with our server, which shares one context among all slots, then with the peer's, which splits it."""
    options = [*common, "-c", str(sizes.total_context)]
    run = served(PYJET, [*options, "--parallel", "8", "--kv-unified", "--device", device], list(LLAMA_CPP), sizes)
    found: dict[str, Any] = figures(run["records"])
    failures = [run["failed"]] if "failed" in run else []
    peers: dict[str, float] = {}
    if peer is not None:
        halves = {"4": (options, ["1", "4", "4x23k"]),
                  "8": ([*common, "-c", str(sizes.total_context // 2)], ["8"])}  # fmt: skip
        for slots, (context, cases) in halves.items():
            more = ["--parallel", slots, "-ngl", "99" if device == "cuda" else "0", "-fa", "on"]
            run = served([str(peer)], [*context, *more], cases, sizes)
            peers |= figures(run["records"], "llama_cpp_")
            failures += [run["failed"]] if "failed" in run else []
    found |= peers | ratios(found, peers, device_label(device))
    return found | ({"served_failures": failures} if failures else {})
