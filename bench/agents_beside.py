"""pyjet-server and llama-server in turn, as agents use them: ``python -m bench.agents_beside MODEL.gguf``.

Both serve the same file with the same options, one after the other on the same machine, and bench.agents plays:
prefill, one fresh long prompt alone; followup, all agents send the next request on their long conversations at the same
moment; mixed, one agent decodes while another's fresh long prompt is read. Figures:

\b
  followup_ttft_s_4x23k        time to first token, the worst of the agents, median of the repetitions
  decode_share_during_prefill  decode speed of the one agent while the other's prompt is read, over before
  longest_pause_s              the longest time in which it got no token meanwhile, worst repetition
  prompt_slowdown              time to first token of that prompt, over the same alone

llama-server's have the prefix llama_cpp_, and llama_cpp_tuned_ with `--cache-ram 0 -ub 2048`. Nothing is begun that
would not end within --time-limit; what was left out is in the file.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench import bounds, record
from bench.agents_figures import figures, prompt_rate
from bench.agents_time import START_SECONDS, expected_seconds
from bench.gpu import device_label
from bench.load_client import Server
from bench.load_scenarios import Load
from bench.server import PYJET, running_server
from pyjet.model.reader import load_model

SCENARIOS = ("prefill", "followup", "mixed")
TUNED = ("--cache-ram", "0", "-ub", "2048")
REQUEST_SECONDS = 120.0


class Clock:
    """What may still begin, and what was left out."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.left_out: list[str] = []

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def allows(self, what: str, seconds: float) -> bool:
        if seconds <= self.left:
            return True
        self.left_out.append(f"{what}: would take {seconds:.0f} s of {max(0.0, self.left):.0f} s left")
        click.echo(f"  left out: {self.left_out[-1]}", err=True)
        return False


def play(name: str, load: Load, clock: Clock, rate: float | None) -> None:
    """The scenarios of one server, as far as time allows. `rate`: prompt tokens a second that are expected."""
    load.warm()
    for scenario in SCENARIOS:
        for rep in range(load.a.reps):
            needed = expected_seconds(scenario, prompt_rate(load.results) or rate, load.built, load.a)
            if not clock.allows(f"{name} {scenario} #{rep}", needed):
                break
            load.play(scenario, rep)


def measure(name: str, program: Sequence[str], options: Sequence[str], args: Namespace, clock: Clock,
            rate: float | None = None) -> list[dict[str, Any]]:  # fmt: skip
    """Start a server and play. The records so far when it fails."""
    needed = START_SECONDS + expected_seconds("prefill", rate, False, args)
    if not clock.allows(name, needed):
        return []
    click.echo(f"{name}: {' '.join(options)}", err=True)
    results: list[dict[str, Any]] = []
    try:
        with running_server(options, clock.left, program) as url:
            load = Load(args, Server(url, "llama", None, None, REQUEST_SECONDS))
            results = load.results
            play(name, load, clock, rate)
    except (RuntimeError, OSError, ValueError) as error:
        clock.left_out.append(f"{name} stopped: {type(error).__name__}: {error}")
        click.echo(clock.left_out[-1], err=True)
    return results


def prefixed(prefix: str, found: dict[str, float]) -> dict[str, float]:
    return {prefix + key: value for key, value in found.items()}


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--llama-server", "peer", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="llama.cpp's server; without it pyjet's alone runs.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
@click.option("--total-context", default=131072, show_default=True, help="Tokens of all slots.")
@click.option("--agents", default=4, show_default=True)
@click.option("--context", default=23000, show_default=True, help="Tokens of each agent's conversation.")
@click.option("--followup", default=200, show_default=True, help="New tokens of the next request on it.")
@click.option("--prefill", default=20000, show_default=True, help="Tokens of the fresh long prompt.")
@click.option("--tokens", default=96, show_default=True, help="Tokens of an answer in `followup`.")
@click.option("--mixed-tokens", default=4096, show_default=True, help="Most tokens of the decoding agent in `mixed`.")
@click.option("--mixed-lead", default=1.0, show_default=True, help="Seconds of decoding alone before and after.")
@click.option("--reps", default=2, show_default=True, help="Repetitions with pyjet.")
@click.option("--peer-reps", default=1, show_default=True, help="Repetitions with llama-server.")
@click.option("--time-limit", default=240.0, show_default=True, help="Seconds.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to add the figures to.")
def main(model: Path, peer: Path | None, device: str, kv: str, total_context: int, mixed_tokens: int, tokens: int,
         reps: int, peer_reps: int, time_limit: float, out: Path | None, **sizes: Any) -> None:  # fmt: skip
    clock = Clock(time_limit)
    args = Namespace(**sizes, short=64, out=tokens, prefill_out=4, mixed_out=mixed_tokens, reps=reps, warmup=True,
                     seed=time.time_ns() & 0xFFFFFFFF)  # fmt: skip
    options = ["-m", str(model), "-c", str(total_context), "--parallel", str(args.agents), "-ctk", kv, "-ctv", kv,
               "-fa", "on", "-ngl", "99" if device == "cuda" else "0"]  # fmt: skip
    found: dict[str, Any] = figures(measure("pyjet", PYJET, [*options, "--device", device], args, clock))
    if peer is not None:
        found |= measure_peer(str(peer), options, Namespace(**{**vars(args), "reps": peer_reps}), clock)
    found = {
        "command": f"python -m bench.agents_beside {model.name} --device {device} --kv {kv}",
        "sizes": f"{args.agents} x {args.context} + {args.followup}, prompt {args.prefill}, -c {total_context}",
        **found,
        "left_out": clock.left_out,
        "verdicts": {bound.key: verdict for bound, _, verdict in bounds.lines(found) if verdict != "not measured"},
    }
    if out:
        record.update(out, record.identity(load_model(model), device_label(device)), found)
    record.show(found)
    sys.exit(int("followup_ttft_s_4x23k" not in found))


def measure_peer(program: str, options: list[str], args: Namespace, clock: Clock) -> dict[str, float]:
    """llama-server with its defaults, and tuned when there is time."""
    plain = measure("llama_cpp", [program], options, args, clock)
    found = prefixed("llama_cpp_", figures(plain))
    if (rate := prompt_rate(plain)) is None:
        return found
    needed = START_SECONDS + sum(expected_seconds(s, rate, s == "mixed", args) for s in SCENARIOS)
    if clock.allows("llama_cpp_tuned", needed):
        tuned = measure("llama_cpp_tuned", [program], [*options, *TUNED], args, clock, rate)
        found |= prefixed("llama_cpp_tuned_", figures(tuned))
    return found


if __name__ == "__main__":
    main()
