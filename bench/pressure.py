"""Eight conversations in memory for five: ``python -m bench.pressure [MODEL.gguf --device cuda --first 9000 ...]``.

The engine runs in this process. Its pool of KV pages holds five of the conversations at their full length; eight go
on at once for three rounds, so that some must leave the device and come back. Every other one is greedy, the others
are sampled with one seed. Then each runs alone, on a fresh engine that reads every prompt from its start. The exit
status is 0 when all token ids are equal and no token was computed again after its pages were taken.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from bench import record
from bench.pressure_talk import EngineFailure, Sizes, Talk, make_talks, play
from pyjet.assets import default_model_path
from pyjet.engine.counters import Counters
from pyjet.engine.local import LocalEngine
from pyjet.engine.settings import EngineSettings
from pyjet.model.reader import load_model

COUNTERS = ("tokens_recomputed", "preemptions", "swaps_out", "swaps_in", "swap_seconds")  # as far as they are there


def pool_settings(model: Path, sizes: Sizes, n_agents: int, n_held: int, **options: Any) -> EngineSettings:
    """An engine with a slot for each agent and pages for the full length of `n_held` of them."""
    page = EngineSettings.page_tokens
    longest = -(-(sizes.longest + 1) // page) * page
    return EngineSettings(str(model), n_slots=n_agents, n_ctx_slot=longest, n_ctx_total=n_held * longest, **options)


def run_alone(settings: EngineSettings, talks: Sequence[Talk], is_shared: bool) -> list[Talk]:
    """Each conversation without any other, nothing reused. `is_shared`: one engine for all, one after the other."""
    again = [talk.again() for talk in talks]
    for group in [again] if is_shared else [[talk] for talk in again]:
        with LocalEngine.load(settings) as engine:
            for talk in group:
                play(engine, [talk], reuse=False)
    return again


def differences(talks: Sequence[Talk], alone: Sequence[Talk]) -> list[str]:
    """Where an answer is not the same: conversation, round, first token that differs."""
    found = []
    for number, (a, b) in enumerate(zip(talks, alone)):
        for round_number, (x, y) in enumerate(zip(a.answers, b.answers)):
            if x != y:
                first = next((i for i, (m, n) in enumerate(zip(x, y)) if m != n), min(len(x), len(y)))
                found.append(f"conversation {number}, round {round_number}: from token {first} of {len(y)} on")
                break  # later rounds continue another text
    return found


def summarise(talks: Sequence[Talk], sizes: Sizes, counters: Counters) -> dict[str, Any]:
    """What the engine did under pressure. New tokens: each later round reads its words and the last answer's end."""
    timings = [t for talk in talks for t in talk.timings]
    return {
        **{key: getattr(counters, key) for key in COUNTERS},
        "worst_swap_in_s": max(t.swap_ms for t in timings) / 1e3,  # of one request
        "prompt_tokens_new": len(talks) * (sizes.first + (sizes.rounds - 1) * (sizes.more + 1)),
        "prompt_tokens_read": sum(t.prompt_n for t in timings),
        "prompt_tokens_reused": sum(t.cache_n for t in timings),
        "tokens_generated": sum(t.predicted_n for t in timings),
        "longest_wait_for_a_slot_s": round(max(t.queue_ms for t in timings) / 1e3, 3),
        "pages": counters.pages_total,
    }


@contextlib.contextmanager
def timed(figures: dict[str, Any], key: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    figures[key] = round(time.perf_counter() - begin, 2)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
@click.option("--agents", default=8, show_default=True)
@click.option("--held", default=5, show_default=True, help="Conversations of full length that the pool holds.")
@click.option("--first", default=64, show_default=True, help="Tokens of the first prompt.")
@click.option("--more", default=64, show_default=True, help="New tokens of each later prompt.")
@click.option("--answer", default=400, show_default=True, help="Tokens of each answer.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--cache-ram", default=8192, show_default=True, help="MiB of host memory for what leaves the device.")
@click.option("--seed", default=1, show_default=True, help="Of the prompts.")
@click.option("--shared-engine", is_flag=True, help="Load the model once for all that run alone, not once for each.")
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="File for the figures.")
def main(model: Path | None, device: Any, kv: Any, agents: int, held: int, cache_ram: int, seed: int,
         shared_engine: bool, json_out: Path | None, **lengths: int) -> None:  # fmt: skip
    path = model or default_model_path()
    sizes = Sizes(**lengths)
    settings = pool_settings(path, sizes, agents, held, device=device, kv_type_k=kv, kv_type_v=kv,
                             cache_ram=cache_ram)  # fmt: skip
    loaded = load_model(path)
    talks = make_talks(agents, sizes, loaded.hyperparams.n_vocab, seed)
    figures: dict[str, Any] = {"command": f"python -m bench.pressure {path.name} --device {device} --kv {kv}",
                               "agents": agents, "held": held, **lengths}  # fmt: skip
    try:
        with LocalEngine.load(settings) as engine:
            with timed(figures, "seconds_together"):
                play(engine, talks)
            figures |= summarise(talks, sizes, engine.counters())
        with timed(figures, "seconds_alone"):
            alone = run_alone(settings, talks, shared_engine)
    except EngineFailure as error:
        raise click.ClickException(str(error)) from error
    wrong = differences(talks, alone)
    figures |= {"is_equal": not wrong, "is_kept": not wrong and figures["tokens_recomputed"] == 0}
    record.show(figures)
    for line in wrong:
        click.echo(f"not equal: {line}")
    if json_out is not None:
        record.update(json_out, record.identity(loaded, device), {**figures, "not_equal": wrong})
    sys.exit(0 if figures["is_kept"] else 1)


if __name__ == "__main__":
    main()
