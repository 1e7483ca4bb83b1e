"""How the next requests of several agents reach the step that reads them: ``python -m bench.arrival``.

Agents with long conversations send 200 more tokens at the same moment, as in the scenario `followup` of bench.agents,
to a server on a device whose steps take as long as a GPU's (bench.priced_server). All the rest is real: HTTP, JSON, the
chat template, tokens, the way to the engine's process, and what is planned there. Milliseconds from the moment they
are sent, medians of the repetitions; API is `chat` with messages or `llama` with token ids.

\b
  arrival_API_first_ms   the first request is handed to the engine
  arrival_API_last_ms    the last one is
  arrival_API_step_ms    the step begins that ends the last prompt
  arrival_API_ttft_ms    the last agent has its first token
  arrival_API_over_ms    that, beyond what a single step of all their rows takes
  arrival_API_n_steps    steps until then
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench import record
from bench.load_client import Reply, Server
from bench.load_prompts import Agent, Prompts
from bench.load_scenarios import check, together
from bench.priced_server import price
from bench.server import served
from pyjet.assets import default_model_path
from pyjet.model.reader import load_model

APIS = ("chat", "llama")
N_OUT = 16  # tokens of an answer
TOOLS_SECONDS = 0.3  # between an answer and the next request: states are copied to the host meanwhile
REQUEST_SECONDS = 120.0


def give_history(agent: Agent, prompts: Prompts, n_tokens: int, n_messages: int) -> None:
    """A conversation of so many tokens, of which all but the last message are there."""
    if agent.server.api == "llama":
        agent.history = prompts.make(n_tokens)
        return
    for i in range(n_messages - 1):
        role = ("user", "assistant")[i % 2]
        agent.history.append({"role": role, "content": prompts.make(n_tokens // n_messages)})


def ask_at_once(agents: Sequence[Agent], prompts: Prompts, n_tokens: int) -> list[Reply]:
    """All send their next message at the same moment, when they have run their tools."""
    time.sleep(TOOLS_SECONDS)
    new = [prompts.make(n_tokens) for _ in agents]
    gate = threading.Barrier(len(agents), timeout=REQUEST_SECONDS)
    return check(together([lambda a=a, n=n: a.ask(n, N_OUT, ready=gate.wait) for a, n in zip(agents, new)]))


def summarise(replies: Sequence[Reply], submits: Sequence[float], steps: dict[str, Any]) -> dict[str, float]:
    """Of one repetition, in milliseconds; ``submits`` and ``steps`` of the whole run, in seconds."""
    sent, told = min(r.sent for r in replies), max(r.first for r in replies)
    handed = [at for at in submits if sent <= at <= told]
    computed = [i for i, end in enumerate(steps["end"]) if steps["begin"][i] >= sent and end <= told]
    n_rows = sum((r.prompt_tokens or 0) - (r.cached_tokens or 0) for r in replies)
    ms = {
        "first": handed[0] - sent, "last": handed[-1] - sent, "step": steps["begin"][computed[-1]] - sent,
        "ttft": told - sent, "over": told - sent - price(n_rows),
    }  # fmt: skip
    return {**{f"{name}_ms": 1e3 * seconds for name, seconds in ms.items()}, "n_steps": len(computed)}


def measure(api: str, model: Path, n_agents: int, n_context: int, n_new: int, n_messages: int, reps: int
            ) -> dict[str, float]:  # fmt: skip
    """The figures of one API."""
    with tempfile.TemporaryDirectory() as folder:
        program = (sys.executable, "-m", "bench.priced_server", folder)
        context = n_agents * (n_context + 2 * reps * (n_new + 50) + 1000)
        with served(["-m", str(model), "-np", str(n_agents), "-c", str(context)], program=program) as (url, _):
            server = Server(url, api, None, None, REQUEST_SECONDS)
            prompts = Prompts(server, seed=1)
            agents = [Agent(server) for _ in range(n_agents)]
            for agent in agents:
                give_history(agent, prompts, n_context, n_messages)
            ask_at_once(agents, prompts, n_context // n_messages)
            rounds = [ask_at_once(agents, prompts, n_new) for _ in range(reps)]
        submits, steps = (json.loads((Path(folder) / f"{name}.json").read_text()) for name in ("submits", "steps"))
    found = [summarise(replies, submits, steps) for replies in rounds]
    return {f"arrival_{api}_{key}": round(statistics.median(f[key] for f in found), 1) for key in found[0]}


@click.command(help=__doc__, context_settings={"max_content_width": 100})
@click.option("--model", type=click.Path(exists=True, path_type=Path), default=default_model_path(),
              help="Whose tokenizer and template are used (default: the built-in one).")  # fmt: skip
@click.option("--agents", default=4, show_default=True)
@click.option("--context", default=23_000, show_default=True, help="Tokens of a conversation.")
@click.option("--messages", default=40, show_default=True, help="Messages of a conversation.")
@click.option("--followup", default=200, show_default=True, help="New tokens of the next request.")
@click.option("--reps", default=9, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to add the figures to.")
def main(model: Path, agents: int, context: int, messages: int, followup: int, reps: int, out: Path | None) -> None:
    sizes = f"--agents {agents} --context {context} --messages {messages} --followup {followup} --reps {reps}"
    figures: dict[str, Any] = {
        "command_arrival": f"python -m bench.arrival {sizes}",
        "arrival_load_average_before": round(os.getloadavg()[0], 1),
    }
    for api in APIS:
        figures |= measure(api, model, agents, context, followup, messages, reps)
    if out:
        record.update(out, record.identity(load_model(model), "steps priced as on an NVIDIA H200"), figures)
    record.show(figures)


if __name__ == "__main__":
    main()
