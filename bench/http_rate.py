"""Four streaming clients beside the engine alone: ``python -m bench.http_rate MODEL.gguf --device cuda``.

The clients ask a real pyjet-server for greedy answers to prompts of token ids; counted are the tokens that arrive while
all of them receive some. They ignore the end of a text, as `bench.agents` does, so that answers are equally long: a ban
on some tokens, with which a row's token is chosen as a sampled one's is. `_plain` is without it, `_sampled` with
temperature 0.8 and the server's other defaults. The engine alone computes the same rows, four sequences from the same
positions on, step after step without anything between.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import click

from bench import record
from bench.load_client import Reply, Server
from bench.load_scenarios import describe, together
from bench.server import running_server
from bench.step_rows import PAGE_TOKENS, Rows, fill, make_batch, pages_for, reset_states
from pyjet.model.reader import Model, load_model
from pyjet.native import EngineConfig, NativeEngine

CONTEXT = 132 * 1024
LOAD_SECONDS = 300.0


def engine_tok_s(engine: NativeEngine, n_seqs: int, n_prompt: int, n_tokens: int) -> float:
    """Tokens a second of steps of n_seqs rows from position n_prompt on."""
    fill(engine, engine.config.max_rows, n_seqs)
    reset_states(engine, range(n_seqs), n_seqs)
    size = pages_for(n_prompt + n_tokens)
    us = 0.0
    for position in range(n_prompt, n_prompt + n_tokens):
        rows = [Rows(slot, 1, position, slot * size) for slot in range(n_seqs)]
        us += engine.step(make_batch(rows, engine.n_vocab)).step_us
    return n_seqs * n_tokens / us * 1e6


def engine_alone(model: Model, device: Any, kv: Any, clients: int, prompt: int, tokens: int) -> tuple[str, float]:
    """The device's name and the rate of the second of two runs."""
    n_pages = max(clients * pages_for(prompt + tokens), CONTEXT // PAGE_TOKENS)
    sizes: dict[str, Any] = {"device": device, "page_tokens": PAGE_TOKENS, "kv_type_k": kv, "kv_type_v": kv}
    with NativeEngine(model, EngineConfig(n_pages, clients + 1, **sizes)) as engine:
        rates = [engine_tok_s(engine, clients, prompt, tokens) for _ in range(2)]
        return engine.info().device_name, rates[-1]


def stream(server: Server, clients: int, n_prompt: int, n_tokens: int, n_vocab: int, **options: Any) -> list[Reply]:
    """One answer for each client, asked for at the same moment. Prompts differ, so that none is cached.

    options: ignore_eos and temperature of the requests.
    """
    numbers = random.Random()
    prompts = [[numbers.randrange(100, min(n_vocab, 200)) for _ in range(n_prompt)] for _ in range(clients)]
    return together([lambda ids=ids: server.generate(ids, n_tokens, **options) for ids in prompts])


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cuda", show_default=True)
@click.option("--kv", type=click.Choice(["f16", "q8_0"]), default="q8_0", show_default=True)
@click.option("--clients", default=4, show_default=True)
@click.option("--prompt", default=200, show_default=True, help="Tokens of each prompt.")
@click.option("--tokens", default=256, show_default=True, help="Tokens of each answer.")
@click.option("--repeat", default=3, show_default=True, help="Rounds; the median counts.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file to add the figures to.")
def main(model: Path, device: str, kv: str, clients: int, prompt: int, tokens: int, repeat: int,
         out: Path | None) -> None:  # fmt: skip
    loaded = load_model(model)
    n_vocab = loaded.hyperparams.n_vocab
    device_name, alone = engine_alone(loaded, device, kv, clients, prompt, tokens)
    options = ["-m", str(model), "--device", device, "-c", str(CONTEXT), "-np", str(clients), "-ctk", kv, "-ctv", kv]
    with running_server(options, LOAD_SECONDS) as url:
        server = Server(url, "llama", None, None, 300.0)
        stream(server, clients, prompt, 32, n_vocab)
        through, plain, sampled = (
            statistics.median(
                describe(stream(server, clients, prompt, tokens, n_vocab, **how))["total_tok_s"]
                for _ in range(repeat)
            )
            for how in ({}, {"ignore_eos": False}, {"temperature": 0.8})
        )
    figures: dict[str, Any] = {
        "command_http": f"python -m bench.http_rate {model.name} --device {device} --kv {kv}",
        "engine_tok_s_4seq": round(alone, 1),
        "http_tok_s_4clients": round(through, 1),
        "http_over_engine_4clients": round(through / alone, 4),
        "http_over_engine_4clients_plain": round(plain / alone, 4),
        "http_over_engine_4clients_sampled": round(sampled / alone, 4),
        "http_us_per_step_4clients": round((clients / through - clients / alone) * 1e6, 1),
    }
    if out:
        record.update(out, record.identity(loaded, device_name), figures)
    record.show(figures)


if __name__ == "__main__":
    main()
